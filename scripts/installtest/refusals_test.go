package installtest

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestRefusals change nothing on the machine.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// change spoils something, and returns more arguments and environment.
		change func(t *testing.T, m *machine, s *site) (args, env []string)
		want   string
	}{
		{"wrong checksum of the agent", func(_ *testing.T, _ *machine, s *site) ([]string, []string) {
			s.put("/ktms/v1.0.0/ktms-node-linux-amd64", []byte("#!/bin/sh\necho other\n"))
			return nil, nil
		}, "the checksum of ktms-node-linux-amd64 is wrong"},
		{"wrong checksum of Ollama", func(_ *testing.T, _ *machine, s *site) ([]string, []string) {
			s.put("/ollama/v0.1.0/ollama-linux-amd64.tar.zst", []byte("other"))
			return nil, nil
		}, "the checksum of ollama-linux-amd64.tar.zst is wrong"},
		{"wrong checksum of cloudflared", func(_ *testing.T, _ *machine, s *site) ([]string, []string) {
			s.put("/cloudflared/1.0.0/cloudflared-linux-amd64", nil)
			return nil, nil
		}, "the checksum of cloudflared-linux-amd64 is wrong"},
		{"download that is cut", func(_ *testing.T, _ *machine, s *site) ([]string, []string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cut = "/ollama/v0.1.0/ollama-linux-amd64.tar.zst"
			return nil, nil
		}, "the download failed, and nothing was changed"},
		{"download not there", func(_ *testing.T, _ *machine, s *site) ([]string, []string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.files, "/ktms/v1.0.0/ktms-node-linux-amd64")
			return nil, nil
		}, "the download failed"},
		{"schedule not valid", func(_ *testing.T, m *machine, _ *site) ([]string, []string) {
			m.write("wrong", 0o600, "rules")
			return []string{"--schedule", m.file("rules")}, nil
		}, "line 1 is wrong"},
		{"schedule not there", func(_ *testing.T, m *machine, _ *site) ([]string, []string) {
			return []string{"--schedule", m.file("none")}, nil
		}, "cannot be read"},
		{"no terminal and no key", func(*testing.T, *machine, *site) ([]string, []string) {
			return nil, []string{"NODE_KEY="}
		}, "no terminal to ask for the node key"},
		{"a client key", func(*testing.T, *machine, *site) ([]string, []string) {
			return nil, []string{"NODE_KEY=ktms_secret"}
		}, "that is no node key"},
		{"a key on the command line", func(*testing.T, *machine, *site) ([]string, []string) {
			return []string{"--node-key", "ktms_node_secret"}, nil
		}, "leave it out"},
		{"a key as a value", func(*testing.T, *machine, *site) ([]string, []string) {
			return []string{"--node-id", "ktms_node_secret"}, nil
		}, "leave it out"},
		{"unknown option", func(*testing.T, *machine, *site) ([]string, []string) {
			return []string{"--turbo=secret"}, nil
		}, "there is no option --turbo"},
		{"option without its value", func(*testing.T, *machine, *site) ([]string, []string) {
			return []string{"--schedule"}, nil
		}, "--schedule wants a value"},
		{"two mistakes", func(*testing.T, *machine, *site) ([]string, []string) {
			return []string{"--max-concurrency", "0", "--node-id", "a b"}, nil
		}, "underscores\n  --max-concurrency must be a number"},
		{"a model that would be a command", func(*testing.T, *machine, *site) ([]string, []string) {
			return []string{"--model", "$(reboot)"}, nil
		}, "--model has a character"},
		{"purge without uninstall", func(*testing.T, *machine, *site) ([]string, []string) {
			return []string{"--purge-backups"}, nil
		}, "goes with --uninstall"},
		{"address of Ollama without a port", func(*testing.T, *machine, *site) ([]string, []string) {
			return nil, []string{"KTMS_OLLAMA_ADDR=127.0.0.1"}
		}, "write it like 127.0.0.1:11435"},
		{"another process on the port", func(_ *testing.T, _ *machine, s *site) ([]string, []string) {
			return nil, []string{"KTMS_OLLAMA_ADDR=" + s.Listener.Addr().String()}
		}, "(process " + strconv.Itoa(os.Getpid()) + "). Stop it, or set KTMS_OLLAMA_ADDR"},
		{"another process on the port that no tool names", func(t *testing.T, m *machine, s *site) ([]string, []string) {
			for _, tool := range []string{"lsof", "ss"} {
				put(t, m.path+"/"+tool, []byte("#!/bin/sh\nexit 1\n"), 0o755)
			}
			return nil, []string{"KTMS_OLLAMA_ADDR=" + s.Listener.Addr().String()}
		}, "taken by a process that cannot be named"},
		{"no services of users", func(t *testing.T, m *machine, _ *site) ([]string, []string) {
			if err := os.Remove(m.path + "/systemctl"); err != nil {
				t.Fatal(err)
			}
			put(t, m.path+"/systemctl", []byte("#!/bin/sh\nexit 1\n"), 0o755)
			return nil, nil
		}, "log in normally"},
		{"another system", func(*testing.T, *machine, *site) ([]string, []string) {
			return nil, []string{osVariable + "=FreeBSD"}
		}, "neither Linux nor macOS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, s := newMachine(t, "Linux"), newSite(t)
			m.env = append(m.env, s.mirrors()...)
			script := s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves)))
			args, env := c.change(t, m, s)
			m.env = append(m.env, env...)
			before := m.tree()
			if out := m.refuse(script, c.want, args...); strings.Contains(out, "secret") {
				t.Errorf("a key is repeated:\n%s", out)
			}
			if after := m.tree(); after != before {
				t.Errorf("changed:\n%s\nto\n%s", before, after)
			}
			if calls := m.calls("systemctl"); strings.Contains(calls, "restart") || strings.Contains(calls, "enable") {
				t.Errorf("services were touched:\n%s", calls)
			}
		})
	}
}

// TestScriptOfNoRelease has no checksums, and downloads nothing without them.
func TestScriptOfNoRelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../install-node.sh")
	if err != nil {
		t.Fatal(err)
	}
	script := string(text)
	if head, rest, found := strings.Cut(script, "<<'END_OF_PINS'\n"); found {
		_, rest, _ = strings.Cut(rest, "END_OF_PINS\n")
		script = head + "<<'END_OF_PINS'\nversion ktms -\nEND_OF_PINS\n" + rest
	}
	m := newMachine(t, "Linux")
	m.refuse(script, "has no checksum for ktms-node-linux-amd64")
}

// TestCut runs beginnings of the script, as a connection that breaks leaves it in the shell's hands.
func TestCut(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../install-node.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "Linux")
	lines := 0
	for end := range text {
		if text[end] == '\n' {
			lines++
		}
		// The end of every fifth line, and everything around the only call.
		if (text[end] != '\n' || lines%5 != 0) && end < len(text)-20 {
			continue
		}
		out, _ := m.run(string(text[:end]), "--uninstall")
		if strings.TrimSpace(string(text[:end])) == strings.TrimSpace(string(text)) {
			continue // nothing but the last line's end is missing
		}
		if called := m.calls("uname"); called != "" {
			t.Fatalf("cut at byte %d, it did something: %s%s", end, called, out)
		}
	}
	if tree := m.tree(); strings.Count(tree, "\n") != 1 {
		t.Errorf("left behind:\n%s", tree)
	}
	if _, err := m.run(string(text), "--uninstall"); err != nil || m.calls("uname") == "" {
		t.Errorf("the whole script did nothing: %v", err)
	}
}

// TestNotRegistered says what the agent says.
func TestNotRegistered(t *testing.T) {
	t.Parallel()
	m, s := newMachine(t, "Linux"), newSite(t)
	m.env = append(append(m.env, s.mirrors()...), "KTMS_WAIT=1")
	agent := agentProgram("v1.0.0", `say INFO "ktms-node starts"; say WARN 'key belongs to node \\"x\\"'`)
	out := m.refuse(s.publish(t, newRelease(t, "v1.0.0", agent)), `It says: key belongs to node "x"`)
	if !strings.Contains(out, "--doctor") {
		t.Errorf("it does not say what to do:\n%s", out)
	}
	m.runs("node")
}

// TestMissingModel names it.
func TestMissingModel(t *testing.T) {
	t.Parallel()
	m, s, script := installed(t, "Linux")
	m.env = append(m.env, s.mirrors()...)
	m.refuse(script, "the model missing:1b could not be pulled", "--model", "missing:1b")
}

// TestShellcheck has no complaint, where shellcheck is installed; scripts/lint installs it.
func TestShellcheck(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Skip("shellcheck is not installed; scripts/lint runs it")
	}
	out, err := exec.CommandContext(t.Context(), path, "--shell=sh", "../install-node.sh", "../release-node").CombinedOutput()
	if err != nil || !bytes.Equal(out, nil) {
		t.Errorf("%v:\n%s", err, out)
	}
}
