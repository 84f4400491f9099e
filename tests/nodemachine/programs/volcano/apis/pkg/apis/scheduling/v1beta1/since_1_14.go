package v1beta1

// QueueAllocationGateKey is the one name of the API's version 1.15 that Volcano 1.15.1 uses and 1.14.0 lacks; its value
// is in Volcano's docs/user-guide/how_to_use_scheduling_gates_queue_admission.md.
const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"
