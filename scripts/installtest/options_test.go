package installtest

import (
	"os"
	"strings"
	"testing"
)

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

// TestAddresses are dialled over TLS where that is likely, and as the caller says where he does.
func TestAddresses(t *testing.T) {
	t.Parallel()
	m, s, script := installed(t, "Linux")
	m.env = append(s.mirrors(), "NODE_KEY=")
	for _, c := range []struct {
		args string
		tls  bool
	}{
		{"--proxy ktms.internal:9090", false},
		{"--proxy ktms.internal:9090 --tls", true},
		{"--proxy ktms.example.com:443", true},
		{"--proxy=[2001:db8::1]", true},
		{"--proxy [2001:db8::1]:9090", false},
		{"--proxy http://ktms.example.com", false},
		{"--proxy https://ktms.example.com:9090", true},
	} {
		args := append(strings.Fields(c.args), "--node-id=anna-mac", "--model="+model)
		out, err := m.run(script, append(args, "--dry-run")...)
		if err != nil || strings.Contains(out, " over TLS, ") != c.tls {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
		out, err = m.run(script, append(args, "--doctor")...)
		if err != nil || strings.Contains(out, " --tls ") != c.tls {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
}
