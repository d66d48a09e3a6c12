package wire

// Marks of what a fault ended, as thin as it compiles: it is replaced as a whole.
const (
	KindFlowFailed  Kind = 5 // Group is the coflow, Member the flow
	KindBlockFailed Kind = 6 // Group is the block, Parts its replicas
)
