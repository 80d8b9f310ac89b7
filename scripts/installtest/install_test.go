package installtest

import (
	"os"
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
		if m.pid(m.unit(n)) == 0 {
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
	old, unit := m.read(".ktms-node/ollama/bin/ollama"), m.read(m.unitFile("ollama"))
	next := newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves))
	next.ollama, next.ollamaVersion = []byte("#!/bin/sh\n[ \"$1\" = --version ]\n"), "0.2.0"
	m.refuse(s.publish(t, next), "the new Ollama does not start, so the previous one runs again", "--max-concurrency", "2")
	if m.read(".ktms-node/ollama/bin/ollama") != old || m.read(m.unitFile("ollama")) != unit || m.exists(".ktms-node/ollama.previous") {
		t.Error("the previous Ollama is not back")
	}
	m.runs("ollama", "node")
}
