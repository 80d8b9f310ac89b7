package installtest

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// systems are those that the installer knows.
var systems = []string{"Linux", "Darwin"}

// installed is a machine with a node of v1.0.0.
func installed(t *testing.T, system string) (m *machine, s *site, script string) {
	t.Helper()
	m, s = newMachine(t, system), newSite(t)
	m.env = append(m.env, s.mirrors()...)
	script = s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves)))
	m.install(script)
	m.forget()
	s.downloads()
	return m, s, script
}

// runs fails the test unless these services run.
func (m *machine) runs(names ...string) {
	m.t.Helper()
	for _, n := range names {
		if m.pid(strings.TrimSuffix(m.unit(n), "")) == 0 {
			m.t.Errorf("the service %s does not run", n)
		}
	}
}

// pids tell whether a service was restarted.
func (m *machine) pids() map[string]int {
	pids := map[string]int{}
	for _, n := range []string{"ollama", "node", "awake"} {
		pids[n] = m.pid(m.unit(n))
	}
	return pids
}

// restarted lists the services that have another process than before.
func (m *machine) restarted(before map[string]int) string {
	var names []string
	for _, n := range []string{"ollama", "node", "awake"} {
		if before[n] != m.pid(m.unit(n)) {
			names = append(names, n)
		}
	}
	return strings.Join(names, " ")
}

func TestInstall(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			m, s := newMachine(t, system), newSite(t)
			m.env = append(m.env, s.mirrors()...)
			script := s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves)))
			out := m.install(script, "--max-concurrency", "3")
			if !strings.HasSuffix(out, "Node anna-mac is running and registered\n") || strings.Contains(out, nodeKey) {
				t.Errorf("it said:\n%s", out)
			}
			m.runs("ollama", "node", "awake")
			for path, mode := range map[string]string{".ktms-node": "drwx------", ".ktms-node/key": "-rw-------", ".ktms-node/bin/ktms-node": "-rwxr-xr-x"} {
				if info, err := os.Stat(m.file(path)); err != nil || info.Mode().String() != mode {
					t.Errorf("%s: %v, %v", path, info.Mode(), err)
				}
			}
			if m.read(".ktms-node/key") != nodeKey+"\n" {
				t.Error("the key is not stored")
			}
			unit := m.read(m.unitFile("node"))
			for word := range strings.FieldsSeq("--proxy-addr proxy.example.com --tls --node-id anna-mac --node-key-file " + m.file(".ktms-node/key") +
				" --engine-url http://" + m.ollama + " --max-concurrent 3 --only-model " + model + " --expose=cloudflared --cloudflared-path " + m.file(".ktms-node/bin/cloudflared")) {
				if !strings.Contains(unit, word) {
					t.Errorf("the service lacks %s:\n%s", word, unit)
				}
			}
			if ollama := m.read(m.unitFile("ollama")); strings.Contains(unit, nodeKey) || !strings.Contains(ollama, m.ollama) || !strings.Contains(ollama, "OLLAMA_NUM_PARALLEL") {
				t.Errorf("the services:\n%s\n%s", unit, ollama)
			}
			if load := m.calls("load"); load != model+" -1\n" {
				t.Errorf("loaded %q", load)
			}
			if linger := m.calls("loginctl"); (linger == "enable-linger\n") != (system == "Linux") {
				t.Errorf("loginctl was asked %q", linger)
			}
			if entries, err := os.ReadDir(m.home); err != nil || strings.Contains(m.tree(), "ktms-node.stage") {
				t.Errorf("the stage is left behind: %v, %v", entries, err)
			}
		})
	}
}

// TestAgain restarts nothing where nothing changed, and only what changed else.
func TestAgain(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			m, s, script := installed(t, system)
			before := m.pids()
			m.env = append(s.mirrors(), "NODE_KEY=") // the key is there
			out := m.install(script)
			if r := m.restarted(before); r != "" || s.downloads() != "" || !strings.HasSuffix(out, "is running and registered\n") {
				t.Errorf("restarted %q, and said:\n%s", r, out)
			}
			for _, step := range []struct{ what, args, want string }{
				{"a flag of the agent", "--endpoint http://10.0.0.1:11435", "node"},
				{"the number of requests", "--endpoint http://10.0.0.1:11435 --max-concurrency 2", "ollama node"},
			} {
				before = m.pids()
				m.install(script, strings.Fields(step.args)...)
				if r := m.restarted(before); r != step.want {
					t.Errorf("%s restarted %q, want %q", step.what, r, step.want)
				}
			}
			// A new Ollama alone, and then a new agent alone.
			next := newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves))
			next.ollama, next.ollamaVersion = append(next.ollama, "# another build\n"...), "0.2.0"
			before = m.pids()
			m.install(s.publish(t, next))
			if r, got := m.restarted(before), s.downloads(); r != "ollama node" || strings.Count(got, " ") != 0 || !strings.Contains(got, "v0.2.0/ollama") {
				t.Errorf("an update of Ollama, and the flags of before, restarted %q after downloading %q", r, got)
			}
			next.version, next.agent = "v2.0.0", []byte(agentProgram("v2.0.0", serves))
			before = m.pids()
			m.install(s.publish(t, next))
			if r, got := m.restarted(before), s.downloads(); r != "node" || strings.Count(got, " ") != 0 || !strings.Contains(got, "v2.0.0/ktms-node") {
				t.Errorf("an update of the agent restarted %q after downloading %q", r, got)
			}
			if !strings.Contains(m.read(".ktms-node/bin/ktms-node"), "v2.0.0") {
				t.Error("the agent is still the old one")
			}
		})
	}
}

// TestRollback brings the agent of before back when the new one does not start, however it fails.
func TestRollback(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]string{
		"ends before it says anything": `exit 1`,
		"ends after it started":        `say INFO "ktms-node starts"; say ERROR "no luck"; exit 1`,
	} {
		for _, system := range systems {
			t.Run(system+" "+name, func(t *testing.T) {
				t.Parallel()
				m, s, script := installed(t, system)
				kept := m.tree()
				logs := func() string { return m.tryRead("home", ".ktms-node/logs/node.log") }
				before := logs()
				broken := s.publish(t, newRelease(t, "v2.0.0", agentProgram("v2.0.0", serve)))
				m.refuse(broken, "the new agent does not start, so the previous one runs again", "--max-concurrency", "1")
				m.runs("ollama", "node")
				if after := strings.Replace(m.tree(), logs(), before, 1); after != kept {
					t.Errorf("something else is left:\n%s", after)
				}
				m.forget()
				pids := m.pids()
				m.install(script)
				if r := m.restarted(pids); r != "" {
					t.Errorf("the version of before restarts %q", r)
				}
			})
		}
	}
}

// TestFirstAgentDoesNotStart leaves no service behind that fails again and again.
func TestFirstAgentDoesNotStart(t *testing.T) {
	t.Parallel()
	m, s := newMachine(t, "Linux"), newSite(t)
	m.env = append(m.env, s.mirrors()...)
	m.refuse(s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", `exit 1`))), "the agent does not start")
	if !strings.Contains(m.calls("systemctl"), "disable --now ktms-node.service") {
		t.Error("the service is not stopped")
	}
}

// TestOllamaRollback brings the Ollama of before back.
func TestOllamaRollback(t *testing.T) {
	t.Parallel()
	m, s, _ := installed(t, "Linux")
	old := m.read(".ktms-node/ollama/bin/ollama")
	next := newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves))
	next.ollama, next.ollamaVersion = []byte("#!/bin/sh\n[ \"$1\" = --version ]\n"), "0.2.0"
	m.env = append(m.env, "KTMS_WAIT=1")
	m.refuse(s.publish(t, next), "the new Ollama does not start, so the previous one runs again")
	if m.read(".ktms-node/ollama/bin/ollama") != old || m.exists(".ktms-node/ollama.previous") {
		t.Error("the previous Ollama is not back")
	}
	m.runs("ollama", "node")
}

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

// TestCut runs every beginning of the script, as a connection that breaks leaves it in the shell's hands.
func TestCut(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../install-node.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "Linux")
	for end := range text {
		// The ends of lines, and everything around the only call.
		if text[end] != '\n' && end < len(text)-20 {
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

// TestDryRun says what would be done.
func TestDryRun(t *testing.T) {
	t.Parallel()
	m, s := newMachine(t, "Linux"), newSite(t)
	m.env = s.mirrors()
	script := s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves)))
	before := m.tree()
	out := m.install(script, "--dry-run")
	for _, want := range []string{"would download " + s.URL + "/ktms/v1.0.0/ktms-node-linux-amd64", "cloudflared-linux-amd64", "ollama-linux-amd64.tar.zst", "would ask for the node key", "nothing was changed"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if m.tree() != before || s.downloads() != "" || strings.Contains(m.calls("systemctl"), "restart") {
		t.Errorf("it changed something:\n%s", m.tree())
	}
}

// TestSchedule is checked and copied once; the copy is the owner's from then on.
func TestSchedule(t *testing.T) {
	t.Parallel()
	m, s := newMachine(t, "Linux"), newSite(t)
	m.env = append(m.env, s.mirrors()...)
	script := s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves)))
	m.write("now 0%, next 23:00 100%\n", 0o600, "rules")
	out := m.install(script, "--schedule", m.file("rules"))
	if !strings.HasSuffix(out, "Schedule: now 0%, next 23:00 100%\nNode anna-mac is running and registered\n") {
		t.Errorf("it said:\n%s", out)
	}
	if load := m.calls("load"); load != "" {
		t.Errorf("in a pause it loaded %q", load)
	}
	if !strings.Contains(m.read(m.unitFile("node")), "--schedule-file") {
		t.Error("the agent knows no schedule")
	}
	m.write("now 50%, no switch\n", 0o600, ".ktms-node", "schedule")
	before := m.pids()
	out = m.install(script)
	if !strings.Contains(out, "Schedule: now 50%, no switch") || m.restarted(before) != "" || m.calls("load") == "" {
		t.Errorf("restarted %q, loaded %q, and said:\n%s", m.restarted(before), m.calls("load"), out)
	}
	m.write("wrong", 0o600, "rules")
	m.refuse(script, "line 1 is wrong", "--schedule", m.file("rules"))
	if m.read(".ktms-node/schedule") != "now 50%, no switch\n" {
		t.Error("the owner's schedule is gone")
	}
}

// TestKeys asks only where it must, and restarts the agent for another key.
func TestKeys(t *testing.T) {
	t.Parallel()
	m, s, script := installed(t, "Linux")
	m.env = s.mirrors()
	m.refuse(script, "no terminal to ask for the node key", "--new-key")
	// The stored key is another node's.
	out, err := m.run(script, "--proxy", "proxy.example.com", "--node-id", "other", "--model", model)
	if err == nil || !strings.Contains(out, "no terminal to ask for the node key") {
		t.Errorf("the key of another node was taken: %v\n%s", err, out)
	}
	m.env = append(m.env, "NODE_KEY=ktms_node_second")
	before := m.pids()
	m.install(script, "--new-key")
	if r := m.restarted(before); r != "node" || m.read(".ktms-node/key") != "ktms_node_second\n" {
		t.Errorf("restarted %q, key %q", r, m.read(".ktms-node/key"))
	}
	before = m.pids()
	m.install(script)
	if r := m.restarted(before); r != "" {
		t.Errorf("the same key again restarted %q", r)
	}
}

// TestNotRegistered says what the agent says.
func TestNotRegistered(t *testing.T) {
	t.Parallel()
	m, s := newMachine(t, "Linux"), newSite(t)
	m.env = append(append(m.env, s.mirrors()...), "KTMS_WAIT=3")
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

// TestDoctor runs the agent's, with the agent's flags, and adds the services.
func TestDoctor(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			m, _, script := installed(t, system)
			before := m.tree()
			out := m.install(script, "--doctor")
			if !strings.Contains(out, "doctor doctor --model "+model) || !strings.Contains(out, "--only-model "+model) || !strings.Contains(out, "--tls") || m.tree() != before {
				t.Errorf("it said:\n%s", out)
			}
			put(t, m.state+"/ill", nil, 0o600)
			m.refuse(script, "PROBLEM  the engine is ill", "--doctor")
			if err := os.Remove(m.state + "/ill"); err != nil {
				t.Fatal(err)
			}
			if err := stop(m.state, m.unit("ollama")); err != nil {
				t.Fatal(err)
			}
			m.refuse(script, "PROBLEM  the service "+strings.TrimSuffix(m.unit("ollama"), ".service")+" does not run", "--doctor")
		})
	}
	m := newMachine(t, "Linux")
	text, err := os.ReadFile("../install-node.sh")
	if err != nil {
		t.Fatal(err)
	}
	m.refuse(string(text), "no node on this machine yet", "--doctor")
}

// TestUninstall leaves the models and nothing else.
func TestUninstall(t *testing.T) {
	t.Parallel()
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			m, _, script := installed(t, system)
			m.write("weights", 0o600, ".ollama", "models", "blob")
			before, pids := m.tree(), m.pids()
			if out, err := m.run(script, "--uninstall", "--dry-run"); err != nil || m.tree() != before || m.restarted(pids) != "" || !strings.Contains(out, "would remove "+m.file(".ktms-node")) {
				t.Errorf("dry: %v\n%s", err, out)
			}
			if out, err := m.run(script, "--uninstall"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if pids := m.pids(); pids["ollama"]+pids["node"]+pids["awake"] != 0 {
				t.Errorf("still running: %v", pids)
			}
			if tree := m.tree(); strings.Contains(tree, "ktms") || !strings.Contains(tree, "weights") {
				t.Errorf("left:\n%s", tree)
			}
			if out, err := m.run(script, "--uninstall"); err != nil {
				t.Errorf("a second time: %v\n%s", err, out)
			}
		})
	}
}

// TestHelp names every option of the manual.
func TestHelp(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../install-node.sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := newMachine(t, "Linux").run(string(text), "--help")
	for want := range strings.FieldsSeq("--proxy --node-id --model --max-concurrency --schedule --doctor --dry-run --new-key --uninstall --keep-legacy --purge-backups --tls KTMS_OLLAMA_ADDR NODE_KEY") {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: it lacks %s:\n%s", err, want, out)
		}
	}
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
