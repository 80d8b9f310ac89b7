package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is what a program has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

var apiLine = regexp.MustCompile(`OpenAI-compatible API +(http://\S+)/v1`)

// program is a running "ktms-server dev" in the current folder, on free ports.
type program struct {
	base     string
	out, log *output
	stop     func()
}

func startDev(t *testing.T, places []place) *program {
	t.Helper()
	cfg, err := readConfig(true)
	if err != nil {
		t.Fatal(err)
	}
	cfg.places = places
	p := &program{out: &output{}, log: &output{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serveDev(ctx, cfg, p.out, p.log) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("dev ended with: %v", err)
		}
	})
	t.Cleanup(p.stop)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if found := apiLine.FindStringSubmatch(p.out.String()); found != nil {
			p.base = found[1]
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("dev is not ready:\n%s\n%s", p.out, p.log)
		}
	}
}

var freePorts = map[string]string{"HTTP_ADDR": "127.0.0.1:0", "GRPC_ADDR": "127.0.0.1:0", "METRICS_ADDR": ""}

func with(more map[string]string) map[string]string {
	all := map[string]string{}
	for _, set := range []map[string]string{freePorts, more} {
		for name, value := range set {
			all[name] = value
		}
	}
	return all
}

// post makes a call and returns the answer's header and body.
func post(t *testing.T, url, key, body string) (int, http.Header, string) {
	t.Helper()
	return send(t, http.MethodPost, url, key, body)
}

func send(t *testing.T, method, url, key, body string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

const hello = `{"model":"auto","messages":[{"role":"user","content":"hello"}]}`

func TestDev_AnswersWithNothingInstalledAndKeepsItsData(t *testing.T) {
	environment(t, freePorts)
	t.Chdir(t.TempDir())
	p := startDev(t, nil)
	if !strings.Contains(p.out.String(), "Bearer "+devClientKey) {
		t.Errorf("no curl line with the key:\n%s", p.out)
	}
	code, _, text := post(t, p.base+"/v1/chat/completions", devClientKey, hello)
	if code != 200 || !strings.Contains(text, "demonstration") || !strings.Contains(text, "hello") {
		t.Errorf("the demonstration: %d %s", code, text)
	}
	for name, mode := range map[string]os.FileMode{devDir: 0o700, devDir + "/keyring": 0o600, devDir + "/ktms.db": 0o600} {
		info, err := os.Stat(filepath.FromSlash(name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	keyring, err := os.ReadFile(filepath.Join(devDir, "keyring"))
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
	again := startDev(t, nil)
	kept, err := os.ReadFile(filepath.Join(devDir, "keyring"))
	if err != nil || !bytes.Equal(kept, keyring) {
		t.Error("the second start made another keyring")
	}
	if code, _, text := post(t, again.base+"/v1/chat/completions", devClientKey, hello); code != 200 {
		t.Errorf("after the second start: %d %s", code, text)
	}
}

func TestDev_FindsALocalEngine(t *testing.T) {
	var asked []string
	var mu sync.Mutex
	ollama := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"qwen3:latest"},{"id":"nomic-embed-text:latest"}]}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		asked = append(asked, string(body))
		mu.Unlock()
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"local"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(ollama.Close)
	environment(t, freePorts)
	t.Chdir(t.TempDir())
	p := startDev(t, []place{{"nobody", "http://127.0.0.1:1/v1"}, {"Ollama", ollama.URL + "/v1"}})
	code, header, text := post(t, p.base+"/v1/chat/completions", devClientKey, hello)
	if code != 200 || !strings.Contains(text, `"model":"qwen3"`) || header.Get("X-KTMS-Vendor") != "ollama" {
		t.Errorf("got %d %v %s", code, header, text)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 || !strings.Contains(asked[0], `"model":"qwen3"`) {
		t.Errorf("the engine was asked %q", asked)
	}
}

func TestDev_SeedsWhatTheEnvironmentGivesAndLeavesAnOperatorsRulesAlone(t *testing.T) {
	openai := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-canary" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"cloud"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(openai.Close)
	environment(t, with(map[string]string{"OPENAI_API_KEY": "sk-canary", "OPENAI_BASE_URL": openai.URL + "/v1", "GEMINI_API_KEY": "AIza-canary",
		"GEMINI_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "sk-ant-canary"}))
	t.Chdir(t.TempDir())
	p := startDev(t, nil)
	for model, want := range map[string]string{"auto:low": "gpt-6-luna", "auto:medium": "gpt-6-luna", "auto:high": "gpt-6.1-terra"} {
		code, _, text := post(t, p.base+"/v1/chat/completions", devClientKey, strings.Replace(hello, "auto", model, 1))
		var answer struct{ Model string }
		if json.Unmarshal([]byte(text), &answer) != nil || code != 200 || answer.Model != want {
			t.Errorf("%s: %d %s, want %s", model, code, text, want)
		}
	}
	if strings.Contains(p.log.String()+p.out.String(), "canary") {
		t.Errorf("a key shows:\n%s\n%s", p.log, p.out)
	}
	if _, _, text := send(t, http.MethodGet, p.base+"/v1/models", devClientKey, ""); !strings.Contains(text, "claude-haiku-5-5") || !strings.Contains(text, "gemini-3.8-flash") {
		t.Errorf("vendors whose keys are given are seeded: %s", text)
	}

	grpc := regexp.MustCompile(`Connect (\S+)`).FindStringSubmatch(p.out.String())[1]
	code, _, text := post(t, "http://"+grpc+"/ktms.v1.AdminService/ReplaceRules", devAdminKey,
		`{"rules":[{"name":"mine","priority":1,"use":["gpt-6.1-terra"],"enabled":true},{"name":"low","priority":2,"effort":"EFFORT_LOW","use":["gpt-6-luna"],"enabled":true}]}`)
	if code != 200 {
		t.Fatalf("ReplaceRules: %d %s", code, text)
	}
	p.stop()
	again := startDev(t, nil)
	_, header, _ := post(t, again.base+"/v1/chat/completions", devClientKey, hello)
	if got := header.Get("X-KTMS-Rule"); got != "mine" {
		t.Errorf("the operator's rule is gone: %q", got)
	}
}

func TestDev_StaysOnLoopback(t *testing.T) {
	for _, variable := range []string{"HTTP_ADDR", "GRPC_ADDR", "METRICS_ADDR"} {
		for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
			environment(t, with(map[string]string{variable: addr}))
			t.Chdir(t.TempDir())
			cfg, err := readConfig(true)
			if err != nil {
				t.Fatal(err)
			}
			err = serveDev(t.Context(), cfg, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), "DEV_ALLOW_REMOTE") {
				t.Errorf("%s=%s: %v", variable, addr, err)
			}
			if _, err := os.Stat(devDir); err == nil {
				t.Errorf("%s=%s: refused, and still left a folder", variable, addr)
			}
		}
	}
}

func TestDev_NeverTouchesAnotherDatabase(t *testing.T) {
	other := filepath.Join(t.TempDir(), "production.db")
	environment(t, with(map[string]string{"DATABASE_URL": "sqlite:" + other, "KTMS_ENCRYPTION_KEYS": testKeyring}))
	t.Chdir(t.TempDir())
	p := startDev(t, nil)
	if _, err := os.Stat(other); err == nil {
		t.Error("dev opened the database of DATABASE_URL")
	}
	if !strings.Contains(p.out.String(), "DATABASE_URL is ignored") {
		t.Errorf("dev does not say so:\n%s", p.out)
	}
	keyring, err := os.ReadFile(filepath.Join(devDir, "keyring"))
	if err != nil || strings.TrimSpace(string(keyring)) == testKeyring {
		t.Errorf("dev took the keyring of the environment (%v)", err)
	}
}

func TestDev_PromisesNoKeyThatDoesNotWork(t *testing.T) {
	environment(t, freePorts)
	t.Chdir(t.TempDir())
	startDev(t, nil).stop()
	environment(t, with(map[string]string{"SEED_CLIENT_KEY": "ktms_another"}))
	cfg, err := readConfig(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := serveDev(t.Context(), cfg, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "SEED_CLIENT_KEY") {
		t.Errorf("got %v", err)
	}
}

func TestDev_OneEditMakesTheRoutingTheOperators(t *testing.T) {
	serveModels := func(list string) place {
		engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				_, _ = io.WriteString(w, `{"data":[`+list+`]}`)
				return
			}
			_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"local"},"finish_reason":"stop"}]}`)
		}))
		t.Cleanup(engine.Close)
		return place{"Ollama", engine.URL + "/v1"}
	}
	answers := func(p *program) string {
		_, _, text := post(t, p.base+"/v1/chat/completions", devClientKey, hello)
		var answer struct{ Model string }
		_ = json.Unmarshal([]byte(text), &answer)
		return answer.Model
	}
	environment(t, freePorts)
	t.Chdir(t.TempDir())
	first := startDev(t, nil)
	if got := answers(first); got != "demo-echo" {
		t.Fatalf("with nothing: %q", got)
	}
	first.stop()
	second := startDev(t, []place{serveModels(`{"id":"new"}`)}) // untouched, so dev follows what the machine offers
	if got := answers(second); got != "new" {
		t.Errorf("with an engine that came: %q", got)
	}
	grpc := regexp.MustCompile(`Connect (\S+)`).FindStringSubmatch(second.out.String())[1]
	edit := `{"rules":[{"name":"seed-low","priority":1,"effort":"EFFORT_LOW","use":["demo-echo"],"enabled":true},
		{"name":"seed-medium","priority":2,"effort":"EFFORT_MEDIUM","use":["demo-echo"],"enabled":true},
		{"name":"seed-high","priority":3,"effort":"EFFORT_HIGH","use":["demo-echo"],"enabled":true}]}`
	if code, _, text := post(t, "http://"+grpc+"/ktms.v1.AdminService/ReplaceRules", devAdminKey, edit); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	second.stop()
	third := startDev(t, []place{serveModels(`{"id":"newer"}`)}) // the names are dev's own, the rules no longer
	if got := answers(third); got != "demo-echo" {
		t.Errorf("the operator's edit is gone: %q", got)
	}
}
