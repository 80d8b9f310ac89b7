//go:build unix

package pooltest

import (
	"os/exec"
	"syscall"
)

// ownSession keeps an interrupt from the terminal away from the watcher, so that it can clean up.
func ownSession(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func pauseProcess(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

func resumeProcess(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
