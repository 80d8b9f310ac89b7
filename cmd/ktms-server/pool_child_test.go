package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childWatcher runs a program, tells its process id, and ends it when its own standard input ends, which the kernel sees to
// when the test process is gone, however it went. A program that is stopped ends as well.
const childWatcher = `
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
echo "process $child"
(cat <&3; kill -KILL $child) >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait $child
code=$?
kill $watch
exit $code
`

// child is a program in a process of its own, of which a test may do with what it likes.
type child struct {
	log *output
	pid int
	// address is where it listens, of an engine.
	address string

	exited chan struct{}
	failed error // how it ended
}

// startChild starts a program with nothing but this in its environment, and waits until it runs, and listens if it does that.
func startChild(t *testing.T, listens bool, environment []string, words ...string) *child {
	t.Helper()
	c := &child{log: &output{}, exited: make(chan struct{})}
	cmd := exec.Command("/bin/sh", append([]string{"-c", childWatcher, "watcher"}, words...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR")}, environment...)
	cmd.Stderr = c.log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	go func() {
		c.follow(stdout, listens, sync.OnceFunc(func() { close(begun) }))
		c.failed = cmd.Wait()
		close(c.exited)
	}()
	t.Cleanup(func() {
		stdin.Close()
		<-c.exited
		if strings.Contains(c.log.String(), "DATA RACE") {
			t.Errorf("%s has a race:\n%s", words[0], c.log)
		}
	})
	select {
	case <-begun:
	case <-c.exited:
		t.Fatalf("%s ended at once: %v\n%s", words[0], c.failed, c.log)
	case <-time.After(patience):
		t.Fatalf("%s does not begin:\n%s", words[0], c.log)
	}
	return c
}

// follow reads the process id, and where it listens.
func (c *child) follow(stdout io.Reader, listens bool, begun func()) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if pid, is := strings.CutPrefix(lines.Text(), "process "); is {
			c.pid, _ = strconv.Atoi(pid)
		}
		if address, is := strings.CutPrefix(lines.Text(), "listens at "); is {
			c.address = address
		}
		if c.pid != 0 && (c.address != "" || !listens) {
			begun()
		}
	}
}

// signal sends the process a signal.
func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(c.pid, s); err != nil {
		t.Fatalf("process %d: %v", c.pid, err)
	}
}

// kill ends it as a crash does, and waits until it is gone.
func (c *child) kill(t *testing.T) {
	t.Helper()
	c.signal(t, syscall.SIGKILL)
	<-c.exited
}

// logs reports whether it has said something.
func (c *child) logs(text string) bool { return strings.Contains(c.log.String(), text) }

// agentFolder is where this test process keeps the agent that it builds.
func agentFolder() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("ktms-node-test-%d", os.Getpid()))
}

// builtAgent is the real agent, built once.
var builtAgent = sync.OnceValues(func() (string, error) {
	program := filepath.Join(agentFolder(), "ktms-node")
	build := exec.Command("go", "build", "-o", program, "../ktms-node")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build ktms-node: %w\n%s", err, out)
	}
	return program, nil
})

// agentProgram is the path of the agent.
func agentProgram(t *testing.T) string {
	t.Helper()
	program, err := builtAgent()
	if err != nil {
		t.Fatal(err)
	}
	return program
}
