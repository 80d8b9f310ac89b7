//go:build !linux

package expose

import "os/exec"

// bind leaves a program in the agent's process group, which launchd ends together with the agent.
func bind(*exec.Cmd) (unbound func()) { return func() {} }
