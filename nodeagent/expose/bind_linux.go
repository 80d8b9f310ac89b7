package expose

import (
	"os/exec"
	"runtime"
	"syscall"
)

// bind ties a program to this one: it ends when the agent does, be it killed, and not when the terminal interrupts the
// agent, which still drains. The program must be started before unbound is called, and end before it.
func bind(cmd *exec.Cmd) (unbound func()) {
	// Linux tells the program when the thread that started it ends, so that thread has to live as long.
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return runtime.UnlockOSThread
}
