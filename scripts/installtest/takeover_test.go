package installtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// legacyUnit is the file of an old service, as the old installer wrote it.
func (m *machine) legacyUnit(name string, program ...string) (path string) {
	if m.os == "Darwin" {
		text := `<?xml version="1.0"?><plist version="1.0"><dict><key>ProgramArguments</key><array>` + "\n"
		for _, word := range program {
			text += "  <string>" + word + "</string>\n"
		}
		path = "Library/LaunchAgents/com.llm-proxy." + name + ".plist"
		m.write(text+"</array><key>StandardErrorPath</key><string>"+m.file("old.log")+"</string></dict></plist>", 0o600, path)
		return path
	}
	path = ".config/systemd/user/llm-proxy-" + name + ".service"
	m.write("[Service]\nExecStart=\""+strings.Join(program, "\" \"")+"\"\nStandardError=append:"+m.file("old.log")+"\n", 0o600, path)
	return path
}

// oldNode is a machine on which the node of before the rename runs for anna-mac, with its Ollama on the node's port.
func oldNode(t *testing.T, system string) (m *machine, s *site, script string, units []string) {
	t.Helper()
	m, s = newMachine(t, system), newSite(t)
	m.env = s.mirrors()
	script = s.publish(t, newRelease(t, "v1.0.0", agentProgram("v1.0.0", serves)))
	m.write("llm_node_old\n", 0o600, ".llm-proxy-node", "node.key")
	program := ".llm-proxy-node/ollama/bin/ollama"
	if system == "Darwin" {
		program = ".llm-proxy-node/ollama/ollama"
	}
	m.write(ollamaProgram(t)+"# the old build\n", 0o755, program)
	m.write("#!/bin/sh\nexec sleep 1000\n", 0o755, ".llm-proxy-node", "bin", "llm-proxy-node")
	units = []string{
		m.legacyUnit("ollama", m.file(program), "serve"),
		m.legacyUnit("node", m.file(".llm-proxy-node/bin/llm-proxy-node"), "--node-id", "anna-mac", "--node-key-file", m.file(".llm-proxy-node/node.key")),
	}
	for i, name := range m.legacyNames() {
		var log string
		var words []string
		var err error
		if system == "Darwin" {
			log, _, words, err = readPlist(m.file(units[i]))
			put(t, filepath.Join(m.state, name+".loaded"), nil, 0o600)
		} else {
			log, _, words, err = readUnit(m.file(units[i]))
		}
		if err == nil {
			err = start(m.state, name, log, []string{"OLLAMA_HOST=" + m.ollama, stateVariable + "=" + m.state}, words)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the old Ollama", func() bool {
		out, err := m.run("curl -fsS http://" + m.ollama + "/api/version")
		return err == nil && out != ""
	})
	return m, s, script, units
}

// legacyNames are what the service manager calls the old services.
func (m *machine) legacyNames() []string {
	if m.os == "Darwin" {
		return []string{"com.llm-proxy.ollama", "com.llm-proxy.node"}
	}
	return []string{"llm-proxy-ollama.service", "llm-proxy-node.service"}
}

// oldRuns counts the old services that run.
func (m *machine) oldRuns() (n int) {
	for _, name := range m.legacyNames() {
		if m.pid(name) != 0 {
			n++
		}
	}
	return n
}

// backups lists the files in the one backup.
func (m *machine) backups() string {
	m.t.Helper()
	entries, err := filepath.Glob(m.file(".ktms-node.backup", "*", "*"))
	if err != nil {
		m.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, filepath.Base(e))
	}
	return strings.Join(names, " ")
}

func TestTakeover(t *testing.T) {
	t.Parallel()
	for system, kept := range map[string]string{
		"Linux":  "llm-proxy-node llm-proxy-node.service llm-proxy-ollama.service",
		"Darwin": "com.llm-proxy.node.plist com.llm-proxy.ollama.plist llm-proxy-node",
	} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			m, s, script, units := oldNode(t, system)
			before := m.tree()
			out := m.install(script, "--dry-run")
			for _, want := range []string{"would take over the node key", "would take over " + m.file(".llm-proxy-node/ollama"), "would stop " + strings.TrimSuffix(m.legacyNames()[0], ".service"), "would move " + m.file(".llm-proxy-node")} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			if m.tree() != before || m.oldRuns() != 2 {
				t.Error("a dry run changed something")
			}

			out = m.install(script)
			if !strings.HasSuffix(out, "is running and registered\n") || m.oldRuns() != 0 {
				t.Errorf("%d old services run:\n%s", m.oldRuns(), out)
			}
			m.runs("ollama", "node", "awake")
			if m.read(".ktms-node/key") != "llm_node_old\n" {
				t.Error("the key was not taken over")
			}
			if got := s.downloads(); strings.Contains(got, "/ollama/") || !strings.Contains(m.read(".ktms-node", strings.TrimPrefix(m.ollamaPath(), ".ktms-node/")), "the old build") {
				t.Errorf("Ollama was not taken over; downloaded %q", got)
			}
			if got := m.backups(); got != kept {
				t.Errorf("backed up %q, want %q", got, kept)
			}
			if m.exists(".llm-proxy-node") || m.exists(units[0]) {
				t.Error("the old node is still in its place")
			}
			pids := m.pids()
			m.install(script)
			if r := m.restarted(pids); r != "" || s.downloads() != "" {
				t.Errorf("a second run restarted %q", r)
			}

			if out, err := m.run(script, "--uninstall"); err != nil || m.backups() != kept {
				t.Errorf("uninstalling lost the backups: %v\n%s", err, out)
			}
			if out, err := m.run(script, "--uninstall", "--purge-backups"); err != nil || m.exists(".ktms-node.backup") {
				t.Errorf("the backups are still there: %v\n%s", err, out)
			}
		})
	}
}

// ollamaPath is where the node's Ollama lies.
func (m *machine) ollamaPath() string {
	if m.os == "Darwin" {
		return ".ktms-node/ollama/ollama"
	}
	return ".ktms-node/ollama/bin/ollama"
}

// TestKeepLegacy leaves the old folder, and retires the services.
func TestKeepLegacy(t *testing.T) {
	t.Parallel()
	m, _, script, _ := oldNode(t, "Linux")
	m.install(script, "--keep-legacy")
	if m.oldRuns() != 0 || !m.exists(".llm-proxy-node", "node.key") || m.backups() != "llm-proxy-node.service llm-proxy-ollama.service" {
		t.Errorf("%d old services run, backed up %q", m.oldRuns(), m.backups())
	}
}

// TestFailureBeforeTakeover leaves the old node running.
func TestFailureBeforeTakeover(t *testing.T) {
	t.Parallel()
	m, s, script, _ := oldNode(t, "Linux")
	s.put("/cloudflared/1.0.0/cloudflared-linux-amd64", []byte("other"))
	before := m.tree()
	m.refuse(script, "the checksum of cloudflared-linux-amd64 is wrong")
	if m.tree() != before || m.oldRuns() != 2 {
		t.Error("the old node was touched")
	}
}

// TestKeyOfAnotherNode is not taken over without asking.
func TestKeyOfAnotherNode(t *testing.T) {
	t.Parallel()
	m, _, script, _ := oldNode(t, "Linux")
	args := []string{"--proxy", "proxy.example.com", "--model", model, "--node-id", "other"}
	if out, err := m.run(script, args...); err == nil || !strings.Contains(out, "no terminal to ask for the node key") || m.oldRuns() != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := m.run(script, append(args, "--dry-run")...); err != nil || !strings.Contains(out, "minted for node anna-mac, serves for other") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestUninstallOldNode retires services that no new node has replaced.
func TestUninstallOldNode(t *testing.T) {
	t.Parallel()
	m, _, script, _ := oldNode(t, "Darwin")
	if out, err := m.run(script, "--uninstall"); err != nil || m.oldRuns() != 0 || m.exists(".llm-proxy-node") || !strings.Contains(out, ".ktms-node.backup") {
		t.Errorf("%v, %d old services run\n%s", err, m.oldRuns(), out)
	}
}

// TestIntelOllama is neither taken over nor used on a Mac of Apple's own kind.
func TestIntelOllama(t *testing.T) {
	t.Parallel()
	m, s, script, _ := oldNode(t, "Darwin")
	m.write(ollamaProgram(t)+"# intel build\n", 0o755, ".llm-proxy-node", "ollama", "ollama")
	put(t, filepath.Join(m.path, "ollama"), []byte("#!/bin/sh\n# intel build\n"), 0o755)
	out := m.install(script)
	for _, ignored := range []string{m.file(".llm-proxy-node/ollama/ollama"), filepath.Join(m.path, "ollama")} {
		if !strings.Contains(out, "ignoring "+ignored+": it is an Intel build") {
			t.Errorf("it does not say that it ignores %s:\n%s", ignored, out)
		}
	}
	if got := s.downloads(); !strings.Contains(got, "ollama-darwin.tgz") || !strings.Contains(got, "ktms-node-darwin-arm64") {
		t.Errorf("downloaded %q", got)
	}
}

// TestBrokenOldOllama is not taken over.
func TestBrokenOldOllama(t *testing.T) {
	t.Parallel()
	m, s, script, _ := oldNode(t, "Linux")
	m.write("#!/bin/sh\nexit 1\n", 0o755, ".llm-proxy-node", "ollama", "bin", "ollama")
	m.install(script)
	if got := s.downloads(); !strings.Contains(got, "/ollama/") {
		t.Errorf("downloaded %q", got)
	}
}

// TestOldBuildAmongOtherFiles takes the program and its libraries alone.
func TestOldBuildAmongOtherFiles(t *testing.T) {
	t.Parallel()
	m, _, script, _ := oldNode(t, "Linux")
	if err := os.Rename(m.file(".llm-proxy-node/ollama/bin/ollama"), m.file(".llm-proxy-node/bin/ollama")); err != nil {
		t.Fatal(err)
	}
	m.write("library", 0o600, ".llm-proxy-node", "lib", "ollama", "libggml.so")
	m.install(script)
	if !strings.Contains(m.read(m.ollamaPath()), "the old build") || m.read(".ktms-node/ollama/lib/ollama/libggml.so") != "library" || m.exists(".ktms-node/ollama/bin/llm-proxy-node") {
		t.Errorf("taken over:\n%s", m.tree())
	}
}
