//go:build !unix

package storetest

import (
	"errors"
	"os/exec"
)

// serverUser says what to do where the watcher's shell is missing.
func serverUser(string) (as func(*exec.Cmd), err error) {
	return nil, errors.New("a throwaway server needs a Unix system; set " + DatabaseURL + " instead")
}
