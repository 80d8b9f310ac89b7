package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// keyPrefixes are what node keys begin with.
var keyPrefixes = []string{"ktms_node_", "llm_node_"}

// wholeKey finds a key within an argument, like an address. A file may have a name that begins like one.
var wholeKey = regexp.MustCompile(`(ktms|llm)_node_[A-Za-z0-9]{24,}`)

// refuseKey refuses a key among the arguments, without repeating it.
func refuseKey(args []string) error {
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		isFlag := strings.HasPrefix(arg, "-") && (name == "node-key" || name == "key")
		begins := func(prefix string) bool { return strings.HasPrefix(arg, prefix) || strings.HasPrefix(value, prefix) }
		if isFlag || slices.ContainsFunc(keyPrefixes, begins) || wholeKey.MatchString(arg) {
			return errors.New("a node key on the command line can be read by every user of this machine and stays in the shell's history: " +
				"put it into the environment as NODE_KEY, or into a file for --node-key-file, and ask for a new key if this one was real")
		}
	}
	return nil
}

const (
	// maxKeyFile bounds the key's file: a key has some dozen bytes.
	maxKeyFile = 4096
	// pipeTimeout bounds a pipe in the place of the file: whoever writes the key may ask for a password first.
	pipeTimeout = time.Minute
)

// keySource gives the node key out. It is safe for concurrent use.
type keySource struct {
	// file is read at each call, so that a new key needs no restart; empty takes the key of the environment.
	file, environment string

	mu sync.Mutex
	// piped is what came from a file that can be read once.
	piped string
}

func (c *config) keySource() *keySource { return &keySource{file: c.nodeKeyFile, environment: c.key} }

// get returns the node key. The file wins.
func (k *keySource) get() (string, error) {
	if k.file == "" {
		if k.environment == "" {
			return "", errors.New("there is no node key: put it into the environment as NODE_KEY, or into a file for --node-key-file")
		}
		if !isKey(k.environment) {
			return "", errors.New("NODE_KEY does not hold a node key: it must be the key alone, on one line")
		}
		return k.environment, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.piped != "" {
		return k.piped, nil
	}
	text, regular, err := readKeyFile(k.file)
	if err != nil {
		return "", fmt.Errorf("the file of the node key cannot be read: %w", err)
	}
	key := strings.TrimSpace(strings.TrimPrefix(text, "\ufeff")) // as Windows' editor saves it
	if !isKey(key) {
		return "", fmt.Errorf("%s does not hold a node key: it must be the key alone, on one line", k.file)
	}
	if !regular {
		k.piped = key
	}
	return key, nil
}

// readKeyFile reads a file, or a pipe as of a shell's <(command), without waiting for a writer that does not come.
func readKeyFile(path string) (text string, regular bool, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", false, err
	}
	_ = file.SetReadDeadline(time.Now().Add(pipeTimeout)) // files have none
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	return string(data), info.Mode().IsRegular(), err
}

// isKey reports whether a text can travel in a header as it is.
func isKey(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// keyFileIsOpen reports whether others than the owner can read the key.
func (c *config) keyFileIsOpen() bool {
	info, err := os.Stat(c.nodeKeyFile)
	return c.nodeKeyFile != "" && err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0
}
