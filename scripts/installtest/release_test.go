package installtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// targets are the systems that a release has agents for.
const targets = "linux-amd64 linux-arm64 darwin-amd64 darwin-arm64"

// site has what the three download pages have.
type site struct {
	*httptest.Server

	mu    sync.Mutex
	files map[string][]byte
	cut   string // the path whose download breaks off
	got   []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, r.URL.Path)
		body, found := s.files[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		if r.URL.Path == s.cut {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			body = body[:len(body)/2] // less than was said makes the server close the connection
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) put(path string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = body
}

// downloads are the paths that were asked for since the last time.
func (s *site) downloads() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := strings.Join(s.got, " ")
	s.got = nil
	return got
}

// mirrors point the scripts at the site.
func (s *site) mirrors() []string {
	return []string{"KTMS_RELEASES=" + s.URL + "/ktms", "KTMS_OLLAMA_RELEASES=" + s.URL + "/ollama", "KTMS_CLOUDFLARED_RELEASES=" + s.URL + "/cloudflared"}
}

// release is what one release consists of.
type release struct {
	version string
	// agent is the program for every system.
	agent []byte
	// ollama and ollamaVersion are Ollama's, cloudflared's is fixed.
	ollama        []byte
	ollamaVersion string
}

func newRelease(t *testing.T, version, agent string) release {
	t.Helper()
	return release{version: version, agent: []byte(agent), ollama: []byte(ollamaProgram(t)), ollamaVersion: "0.1.0"}
}

// publish puts a release on the site, makes it by scripts/release-node, and returns its scripts/install-node.sh.
func (s *site) publish(t *testing.T, r release) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"install-node.sh", "release-node"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(root, "scripts", name), text, 0o755)
	}
	tunnel := []byte("#!/bin/sh\necho cloudflared version 1.0.0\n")
	for target := range strings.FieldsSeq(targets) {
		put(t, filepath.Join(root, "bin/release/ktms-node-"+target), r.agent, 0o755)
		s.put("/ktms/"+r.version+"/ktms-node-"+target, r.agent)
		file, body := "cloudflared-"+target, tunnel
		if strings.HasPrefix(target, "darwin") {
			file, body = file+".tgz", packed(t, map[string][]byte{"cloudflared": tunnel}, true)
		}
		s.put("/cloudflared/1.0.0/"+file, body)
	}
	var sums strings.Builder
	for name, body := range map[string][]byte{
		"ollama-linux-amd64.tar.zst": packed(t, map[string][]byte{"bin/ollama": r.ollama, "lib/ollama/libggml.so": nil}, false),
		"ollama-linux-arm64.tar.zst": packed(t, map[string][]byte{"bin/ollama": r.ollama}, false),
		"ollama-darwin.tgz":          packed(t, map[string][]byte{"ollama": r.ollama}, true),
	} {
		s.put("/ollama/v"+r.ollamaVersion+"/"+name, body)
		fmt.Fprintf(&sums, "%s  ./%s\n", sum(body), name)
	}
	s.put("/ollama/v"+r.ollamaVersion+"/sha256sum.txt", []byte(sums.String()))
	out, err := s.makeRelease(t, root, r.version, "--ollama", r.ollamaVersion, "--cloudflared", "1.0.0", "--built")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	s.downloads()
	text, err := os.ReadFile(filepath.Join(root, "scripts/install-node.sh"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (s *site) makeRelease(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/release-node"), args...)
	cmd.Env = append(os.Environ(), s.mirrors()...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func put(t *testing.T, path string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
}

func sum(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}

// packed is an archive of programs.
func packed(t *testing.T, files map[string][]byte, zip bool) []byte {
	t.Helper()
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, name := range slices.Sorted(maps.Keys(files)) { // so that the same files have the same sum
		body := files[name]
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(body))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !zip {
		return plain.Bytes()
	}
	var small bytes.Buffer
	g := gzip.NewWriter(&small)
	if _, err := g.Write(plain.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}

// ollamaProgram hands over to this test's own program.
func ollamaProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "#!/bin/sh\n" + asVariable + "=ollama exec '" + self + "' \"$@\"\n"
}

// agentProgram is an agent that answers as the real one does, and serves by the given lines.
func agentProgram(version, serve string) string {
	return `#!/bin/sh
say() { echo "{\"level\":\"$1\",\"msg\":\"$2\"}" >&2; }
case $1 in
--version) echo "ktms-node ` + version + `" ;;
schedule)
	if grep -q wrong "$3"; then echo "ktms-node: $3: line 1 is wrong" >&2; exit 1; fi
	cat "$3" ;;
doctor)
	echo "doctor $*"
	if [ -e "$INSTALLTEST_STATE/ill" ]; then echo "PROBLEM  the engine is ill"; exit 1; fi ;;
*)
	` + serve + `
	trap 'say INFO unregistered; say INFO stopped; exit 0' TERM
	while :; do sleep 0.1; done ;;
esac
`
}

// serves registers at once.
const serves = `say INFO "ktms-node starts"; say INFO registered`

// TestReleaseWithoutASum makes no release.
func TestReleaseWithoutASum(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"/ollama/v9.0.0/sha256sum.txt":               "Ollama 9.0.0 has no sums",
		"/cloudflared/9.0.0/cloudflared-linux-amd64": "cloudflared 9.0.0 has no",
	} {
		s, root := newSite(t), t.TempDir()
		for target := range strings.FieldsSeq(targets) {
			put(t, filepath.Join(root, "bin/release/ktms-node-"+target), nil, 0o755)
		}
		pristine, err := os.ReadFile("../install-node.sh")
		if err != nil {
			t.Fatal(err)
		}
		tool, err := os.ReadFile("../release-node")
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(root, "scripts/install-node.sh"), pristine, 0o755)
		put(t, filepath.Join(root, "scripts/release-node"), tool, 0o755)
		if !strings.Contains(name, "ollama") {
			lines := strings.Repeat("0", 64) + "  ollama-linux-amd64.tar.zst\n" + strings.Repeat("0", 64) + "  ollama-linux-arm64.tar.zst\n" + strings.Repeat("0", 64) + " *ollama-darwin.tgz\n"
			s.put("/ollama/v9.0.0/sha256sum.txt", []byte(lines))
		}
		out, err := s.makeRelease(t, root, "v9.0.0", "--ollama", "9.0.0", "--cloudflared", "9.0.0", "--built")
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v, want %q:\n%s", err, want, out)
		}
		s.put("/ollama/v9.0.0/sha256sum.txt", []byte("0123  ollama-linux-amd64.tar.zst\n"))
		if out, err := s.makeRelease(t, root, "v9.0.0", "--ollama", "9.0.0", "--cloudflared", "9.0.0", "--built"); err == nil || !strings.Contains(out, "no SHA-256 of ollama-linux-amd64.tar.zst") {
			t.Errorf("a sum that is none: %v\n%s", err, out)
		}
		after, err := os.ReadFile(filepath.Join(root, "scripts/install-node.sh"))
		if err != nil || !bytes.Equal(after, pristine) {
			t.Errorf("the script changed: %v", err)
		}
	}
}
