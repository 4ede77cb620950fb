"""Programs that produce numbers, and in results/ the numbers they produced."""
