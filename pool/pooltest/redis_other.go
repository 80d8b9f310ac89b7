//go:build !unix

package pooltest

import (
	"errors"
	"os/exec"
)

var errNoSignals = errors.New("a server that pauses needs a Unix system")

func ownSession(*exec.Cmd) {}

func pauseProcess(int) error { return errNoSignals }

func resumeProcess(int) error { return errNoSignals }
