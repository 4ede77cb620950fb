"""What limits a training: times measured three ways, judged, told and drawn."""
