package kernel

import (
	"fmt"
	"os/exec"
)

// Start starts cmd, as exec.Cmd.Start does, with its process inside the
// namespace. Wait for it with cmd.Wait. Methods of cmd that start it themselves,
// such as Run and Output, would start it outside.
//
// /sys still shows the devices of the namespace in which it was mounted; tools
// that use netlink, as ip and tc do, see those of this one.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if err := n.do(cmd.Start); err != nil {
		return fmt.Errorf("start %q in %q: %w", cmd.Path, n.name, err)
	}
	return nil
}

// Run starts cmd inside the namespace and waits for it, as exec.Cmd.Run does.
func (n *Namespace) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}
