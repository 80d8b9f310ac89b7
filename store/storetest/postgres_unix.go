//go:build unix

package storetest

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// serverUser gives the folder to the user that the server may run as, and returns what makes a command run as that
// user: Postgres refuses to run as root. Commands get a session of their own, so that an interrupt from the terminal
// ends the test alone and the watcher can clean up.
func serverUser(folder string) (as func(*exec.Cmd), err error) {
	if os.Getuid() != 0 {
		return func(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		if err := os.Chown(folder, int(uid), int(gid)); err != nil {
			return nil, err
		}
		credential := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return func(command *exec.Cmd) {
			command.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setsid: true}
		}, nil
	}
	return nil, errors.New("a server cannot run as root, and there is no user postgres or nobody to run it as")
}
