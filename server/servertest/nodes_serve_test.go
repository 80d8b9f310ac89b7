package servertest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
)

const (
	nodeSays  = `{"id":"i","choices":[{"message":{"content":"from a node"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
	cloudSays = `{"id":"i","choices":[{"message":{"content":"from the cloud"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
)

// poolWorld is a server with the model "home" on the pool's nodes, and "cloud" behind it in the chain.
type poolWorld struct {
	*servertest.Instance
	machines *memory.Nodes
	key      string
}

func newPoolWorld(t *testing.T, change func(*ktmsv1.ModelSpec)) *poolWorld {
	t.Helper()
	machines := memory.NewNodes(memory.NodesOptions{})
	options := servertest.Defaults(t)
	options.Nodes = machines
	options.NodePool = server.NodePool{Interval: 5 * time.Second, TTL: time.Hour, Sweep: time.Second}
	w := &poolWorld{Instance: servertest.Start(t, options), machines: machines}
	home := &ktmsv1.ModelSpec{Id: "home", Vendor: vendors.Local, Enabled: true}
	if change != nil {
		change(home)
	}
	w.key = w.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{home, servertest.Model("cloud", scripted(t, cloudSays))}})
	return w
}

// engine registers a node whose engine answers by the handler.
func (w *poolWorld) engine(t *testing.T, id string, answer http.HandlerFunc) {
	t.Helper()
	upstream := httptest.NewServer(answer)
	t.Cleanup(func() {
		upstream.CloseClientConnections()
		upstream.Close()
	})
	err := w.machines.Register(t.Context(), pool.NodeSpec{ID: id, Engine: "vllm", Endpoint: upstream.URL, KeyID: "k", MaxConcurrent: 1},
		pool.NodeReport{Level: selection.FullLevel, Models: []pool.NodeModel{{ID: "home", Warm: true}}})
	if err != nil {
		t.Fatal(err)
	}
}

// ask makes a call that the rules route, or one for a model, with further members of the body.
func (w *poolWorld) ask(t *testing.T, model, more string) (code int, header http.Header, body string) {
	t.Helper()
	return request(t, http.MethodPost, w.HTTP+"/v1/chat/completions", w.key,
		`{"model":"`+model+`","messages":[{"role":"user","content":"hello"}]`+more+`}`)
}

// TestPool_IdleMachinesFirst: and the cloud as the reserve, by placement.
func TestPool_IdleMachinesFirst(t *testing.T) {
	w := newPoolWorld(t, nil)
	if code, _, body := w.ask(t, "auto", ""); code != http.StatusOK || !strings.Contains(body, "from the cloud") {
		t.Errorf("without a node: %d %s", code, body)
	}
	if code, _, body := w.ask(t, "auto:nodes-only", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "no machine") {
		t.Errorf("nodes only, without a node: %d %s", code, body)
	}
	w.engine(t, "n", says(http.StatusOK, nodeSays))
	for model, want := range map[string]string{"auto": "a node", "auto:nodes-only": "a node", "home": "a node", "auto:cloud-first": "the cloud", "auto:cloud-only": "the cloud"} {
		code, header, body := w.ask(t, model, "")
		if code != http.StatusOK || !strings.Contains(body, want) || (header.Get("X-KTMS-Vendor") == "local") != (want == "a node") {
			t.Errorf("%s: %d %s by %s, want %s", model, code, body, header.Get("X-KTMS-Vendor"), want)
		}
	}
}

// TestPool_AFailureGoesUnseen: to the next machine, then to the next model.
func TestPool_AFailureGoesUnseen(t *testing.T) {
	w := newPoolWorld(t, nil)
	asked := make(chan string, 10)
	fails := func(id string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			asked <- id
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}
	w.engine(t, "secret-a", fails("a"))
	w.engine(t, "secret-b", fails("b"))
	for _, more := range []string{"", `,"stream":true`} {
		if code, _, body := w.ask(t, "auto", more); code != http.StatusOK || !strings.Contains(body, "from the cloud") {
			t.Errorf("%s: %d %s", more, code, body)
		}
		if first, second := <-asked, <-asked; first == second {
			t.Errorf("%s: %s was asked twice", more, first)
		}
	}
	code, _, body := w.ask(t, "auto:nodes-only", "")
	if code != http.StatusServiceUnavailable || strings.Contains(body, "secret") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("nodes only: %d %s", code, body)
	}
}

// TestPool_ABusyMachineCostsNothing: the call moves on at once, and no rate of the model is spent on it.
func TestPool_ABusyMachineCostsNothing(t *testing.T) {
	w := newPoolWorld(t, func(m *ktmsv1.ModelSpec) { m.Rpm, m.RpmBurst = 2, 1 })
	began, end := make(chan struct{}, 1), make(chan struct{})
	w.engine(t, "n", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(rw, nodeSays)
	})
	done := make(chan string, 1)
	go func() {
		_, _, body := w.ask(t, "home", "")
		done <- body
	}()
	<-began
	for range 5 { // more than the rate has left
		if code, _, body := w.ask(t, "auto", ""); code != http.StatusOK || !strings.Contains(body, "from the cloud") {
			t.Errorf("%d %s", code, body)
		}
	}
	if code, _, body := w.ask(t, "home", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "busy") {
		t.Errorf("%d %s", code, body)
	}
	close(end)
	if body := <-done; !strings.Contains(body, "from a node") {
		t.Error(body)
	}
	if code, _, body := w.ask(t, "home", ""); code != http.StatusOK {
		t.Errorf("the rate was spent on calls that nobody served: %d %s", code, body)
	}
}

// TestPool_WhoWaitsForHowLong: a service as long as the model says, a person a quarter of a second.
func TestPool_WhoWaitsForHowLong(t *testing.T) {
	w := newPoolWorld(t, func(m *ktmsv1.ModelSpec) { m.QueueTimeoutMs = 60_000 })
	began, end := make(chan struct{}, 2), make(chan struct{})
	w.engine(t, "n", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(rw, nodeSays)
	})
	bodies := make(chan string, 2)
	call := func() {
		_, _, body := w.ask(t, "auto", "")
		bodies <- body
	}
	go call()
	<-began
	go call()
	// The person's call ends while the service's still waits: it can only have given up.
	if code, _, body := w.ask(t, "auto", `,"user":"anna"`); code != http.StatusOK || !strings.Contains(body, "from the cloud") {
		t.Errorf("the person's: %d %s", code, body)
	}
	close(end)
	for range 2 {
		if body := <-bodies; !strings.Contains(body, "from a node") {
			t.Errorf("the service's: %s", body)
		}
	}
}

// TestPool_EmbedsToo, by the same machines.
func TestPool_EmbedsToo(t *testing.T) {
	w := newPoolWorld(t, func(m *ktmsv1.ModelSpec) { m.Capabilities = []string{"embedding"} })
	paths := make(chan string, 1)
	w.engine(t, "n", func(rw http.ResponseWriter, r *http.Request) {
		paths <- r.URL.Path
		_, _ = io.WriteString(rw, `{"data":[{"index":0,"embedding":[0.5,1]}],"usage":{"prompt_tokens":2}}`)
	})
	code, header, body := request(t, http.MethodPost, w.HTTP+"/v1/embeddings", w.key, `{"model":"home","input":"hello"}`)
	if code != http.StatusOK || header.Get("X-KTMS-Vendor") != "local" || !strings.Contains(body, `[0.5,1]`) || <-paths != "/v1/embeddings" {
		t.Errorf("%d %s", code, body)
	}
}
