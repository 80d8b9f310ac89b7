package installtest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

// terminal is a person at a pseudo-terminal.
type terminal struct {
	keyboard *os.File

	mu     sync.Mutex
	screen bytes.Buffer
}

// openTerminal gives a machine a terminal.
func openTerminal(t *testing.T, m *machine) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var unlock, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{keyboard: master}
	m.terminal = slave
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.screen.Write(buffer[:n])
			term.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		slave.Close()
		master.Close()
	})
	return term
}

func (t *terminal) shows() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.String()
}

// answer waits for a question and types.
func (t *terminal) answer(test *testing.T, question, text string) {
	eventually(test, question, func() bool { return strings.Contains(t.shows(), question) })
	if _, err := t.keyboard.WriteString(text + "\n"); err != nil {
		test.Error(err)
	}
}

// TestHiddenPrompt reads the key from the terminal, since the script is the standard input, and does not show it.
func TestHiddenPrompt(t *testing.T) {
	t.Parallel()
	m, s := newMachine(t, "Linux"), newSite(t)
	m.env = s.mirrors()
	script := s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves)))
	term := openTerminal(t, m)
	var typing sync.WaitGroup
	typing.Go(func() { term.answer(t, "Node key of anna-mac (hidden): ", "  "+nodeKey+" ") })
	out := m.install(script)
	typing.Wait()
	if m.read(".ktms-node/key") != nodeKey+"\n" {
		t.Error("the key is not stored")
	}
	if strings.Contains(term.shows()+out, nodeKey) {
		t.Errorf("the key is shown:\n%s%s", term.shows(), out)
	}
	// The terminal shows again what is typed.
	if _, err := term.keyboard.WriteString("echo is on\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the echo", func() bool { return strings.Contains(term.shows(), "echo is on") })
}

// TestAsked takes another node's key over when the owner says so.
func TestAsked(t *testing.T) {
	t.Parallel()
	m, _, script, _ := oldNode(t, "Linux")
	term := openTerminal(t, m)
	var typing sync.WaitGroup
	typing.Go(func() { term.answer(t, "minted for node anna-mac, not other", "y") })
	out, err := m.run(script, "--proxy", "proxy.example.com", "--model", model, "--node-id", "other")
	typing.Wait()
	if err != nil || m.tryRead("home", ".ktms-node/key") != "llm_node_old\n" || m.tryRead("home", ".ktms-node/node-id") != "other\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
