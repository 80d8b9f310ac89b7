// Package installtest runs scripts/install-node.sh on a machine of stand-ins: a home folder of its own, a service
// manager that starts real processes, and downloads from a server on loopback.
package installtest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What the stand-ins learn from the environment.
const (
	asVariable    = "INSTALLTEST_AS"    // which of them the test's own program is, where its name does not say so
	stateVariable = "INSTALLTEST_STATE" // the folder in which they note what was done to them
	osVariable    = "INSTALLTEST_OS"    // what uname -s says
)

const (
	nodeKey = "ktms_node_0123456789"
	model   = "gemma4:26b-a4b-it-qat"
)

// machine is one on which a node is installed.
type machine struct {
	t                 *testing.T
	os                string
	home, state, path string
	ollama            string // the address of the node's Ollama
	env               []string
	terminal          *os.File // the controlling terminal; nil for none
}

// newMachine makes one that uname calls system: Linux or Darwin.
func newMachine(t *testing.T, system string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, os: system, home: filepath.Join(dir, "home"), state: filepath.Join(dir, "state"), path: filepath.Join(dir, "path")}
	for _, d := range []string{m.home, m.state, m.path} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"uname", "zstd", "systemctl", "loginctl", "systemd-inhibit"}
	if system == "Darwin" {
		names = []string{"uname", "sysctl", "file", "launchctl", "caffeinate"}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(m.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.ollama = freeAddress(t)
	m.env = []string{"NODE_KEY=" + nodeKey}
	t.Cleanup(m.stopAll)
	return m
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run pipes a script into sh, as the manual has it, and returns all that it printed.
func (m *machine) run(script string, args ...string) (string, error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-s", "--"}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = append([]string{
		"HOME=" + m.home, "PATH=" + m.path + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "KTMS_OLLAMA_ADDR=" + m.ollama, "KTMS_WAIT=300",
		stateVariable + "=" + m.state, osVariable + "=" + m.os,
	}, m.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	if m.terminal != nil {
		cmd.ExtraFiles = []*os.File{m.terminal}
		cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 3
	}
	err := cmd.Run()
	return out.String(), err
}

// install runs the usual command, and must succeed.
func (m *machine) install(script string, args ...string) string {
	m.t.Helper()
	out, err := m.run(script, m.args(args...)...)
	if err != nil {
		m.t.Fatalf("%v:\n%s\nthe agent's log:\n%s", err, out, m.tryRead("home", ".ktms-node/logs/node.log"))
	}
	return out
}

// refuse runs the usual command, and must fail with these words.
func (m *machine) refuse(script, want string, args ...string) string {
	m.t.Helper()
	out, err := m.run(script, m.args(args...)...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, want) {
		m.t.Errorf("%v, want exit 1 and %q:\n%s", err, want, out)
	}
	return out
}

func (m *machine) args(more ...string) []string {
	return append([]string{"--proxy", "proxy.example.com", "--node-id", "anna-mac", "--model", model}, more...)
}

func (m *machine) file(path ...string) string {
	return filepath.Join(append([]string{m.home}, path...)...)
}

// write puts a file below the home folder.
func (m *machine) write(text string, mode os.FileMode, path ...string) {
	m.t.Helper()
	name := m.file(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

// tryRead returns a file below the home or the state folder, or nothing.
func (m *machine) tryRead(where string, path string) string {
	root := m.home
	if where == "state" {
		root = m.state
	}
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(text)
}

// read returns a file below the home folder, which must be there.
func (m *machine) read(path ...string) string {
	m.t.Helper()
	text, err := os.ReadFile(m.file(path...))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

func (m *machine) exists(path ...string) bool {
	_, err := os.Lstat(m.file(path...))
	return err == nil
}

// calls are what was asked of a stand-in since the last forget.
func (m *machine) calls(name string) string { return m.tryRead("state", "calls."+name) }

// forget empties what the stand-ins noted, but not which processes run.
func (m *machine) forget() {
	m.t.Helper()
	notes, err := filepath.Glob(filepath.Join(m.state, "calls.*"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range notes {
		if err := os.Remove(n); err != nil {
			m.t.Fatal(err)
		}
	}
}

// tree is the home folder: every path with its mode and content.
func (m *machine) tree() string {
	m.t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(m.home, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out.WriteString(info.Mode().String() + " " + path + "\n")
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			out.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return out.String()
}

// pid is the process of a service, or 0.
func (m *machine) pid(service string) int { return runningPid(m.state, service) }

// unit is what the service manager calls one of the node's services.
func (m *machine) unit(name string) string {
	if m.os == "Darwin" {
		return "com.ktms." + name
	}
	return "ktms-" + name + ".service"
}

// unitFile is where the file of a service lies.
func (m *machine) unitFile(name string) string {
	if m.os == "Darwin" {
		return "Library/LaunchAgents/com.ktms." + name + ".plist"
	}
	return ".config/systemd/user/ktms-" + name + ".service"
}

// stopAll ends what the service manager started.
func (m *machine) stopAll() {
	files, err := filepath.Glob(filepath.Join(m.state, "*.pid"))
	if err != nil {
		m.t.Error(err)
	}
	for _, f := range files {
		if pid := runningPid(m.state, strings.TrimSuffix(filepath.Base(f), ".pid")); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			eventually(m.t, "the end of "+f, func() bool { return !alive(pid) })
		}
	}
}

// eventually polls until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waited in vain for %s", what)
			return
		}
	}
}

// host is the machine that the test runs on, in uname's word.
func host() string {
	if runtime.GOOS == "darwin" {
		return "Darwin"
	}
	return "Linux"
}

// runningPid reads the process that a service manager noted, and returns 0 when it has ended.
func runningPid(state, service string) int {
	text, err := os.ReadFile(filepath.Join(state, service+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || !alive(pid) {
		return 0
	}
	return pid
}

// alive is false for a process that has ended, also while nobody has waited for it.
func alive(pid int) bool {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	state := strings.TrimSpace(string(out))
	return err == nil && state != "" && !strings.HasPrefix(state, "Z")
}

// TestMain lets the test's own program stand in for those of the machine.
func TestMain(m *testing.M) {
	name := os.Getenv(asVariable)
	if name == "" {
		name = filepath.Base(os.Args[0])
	}
	standIn, found := standIns[name]
	if !found {
		// These tests wait for processes more than they compute.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	state := os.Getenv(stateVariable)
	note(state, name, strings.Join(os.Args[1:], " "))
	if err := standIn(state, os.Args[1:]); err != nil {
		io.WriteString(os.Stderr, name+": "+err.Error()+"\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// note adds a line to what was asked of a stand-in.
func note(state, name, line string) {
	file, err := os.OpenFile(filepath.Join(state, "calls."+name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	io.WriteString(file, line+"\n")
}
