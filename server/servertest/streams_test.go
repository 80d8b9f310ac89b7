package servertest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store/storetest"
)

// endless is a vendor that streams a token every few milliseconds until its caller is gone, or dies after some.
type endless struct {
	// open counts the calls in progress, seen all of them.
	open, seen atomic.Int64
	// dieAfter tokens the connection is cut; 0 means never.
	dieAfter int
	// silent vendors send no byte at all.
	silent bool
}

// tokenGap is the pause between tokens; maxTokens ends a stream that nobody ends.
const (
	tokenGap  = 5 * time.Millisecond
	maxTokens = 6000
)

func (e *endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.seen.Add(1)
	e.open.Add(1)
	defer e.open.Add(-1)
	_, _ = io.Copy(io.Discard, r.Body)
	if e.silent {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range maxTokens {
		if e.dieAfter > 0 && i == e.dieAfter {
			panic(http.ErrAbortHandler)
		}
		_, _ = fmt.Fprintf(w, `data: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"t%d "},"finish_reason":null}]}`+"\n\n", i)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(tokenGap):
		}
	}
}

func (e *endless) serve(t *testing.T) string {
	t.Helper()
	upstream := httptest.NewServer(e)
	t.Cleanup(upstream.Close)
	return upstream.URL
}

const chatStream = `{"model":"auto:low","stream":true,"messages":[{"role":"user","content":"go on"}]}`

var lowRequest = &ktmsv1.GenerateTextRequest{Effort: ktmsv1.Effort_EFFORT_LOW,
	Messages: []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "go on"}}}

// openAIStream reads three tokens through the HTTP door and leaves.
func openAIStream(t *testing.T, client *http.Client, base, key string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", strings.NewReader(chatStream))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	lines, tokens := bufio.NewScanner(resp.Body), 0
	for tokens < 3 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			tokens++
		}
	}
	if tokens < 3 {
		t.Errorf("got %d tokens: %v", tokens, lines.Err())
	}
}

// rpcStream does the same through an RPC door.
func rpcStream(t *testing.T, client ktmsv1connect.GatewayServiceClient) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.GenerateTextStream(ctx, &ktmsv1.GenerateTextStreamRequest{Request: lowRequest})
	if err != nil {
		t.Error(err)
		return
	}
	defer stream.Close()
	for range 3 {
		if _, err := stream.Receive(); err != nil {
			t.Error(err)
			return
		}
	}
}

func TestAClientThatLeavesEndsTheUpstreamCall(t *testing.T) {
	const streams = 20
	vendor := &endless{}
	base := vendor.serve(t)
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base), servertest.Model("n", base)}})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	doors := map[string]func(){
		"openai":  func() { openAIStream(t, client, s.HTTP, key) },
		"connect": func() { rpcStream(t, ktmsv1connect.NewGatewayServiceClient(s.Client(t, key))) },
		"grpc":    func() { rpcStream(t, ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, connecthttp.WithGRPC()))) },
		"grpcweb": func() {
			rpcStream(t, ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, connecthttp.WithGRPCWeb())))
		},
	}
	for door, stream := range doors {
		t.Run(door, func(t *testing.T) {
			stream() // warms the pools, so that their goroutines are part of the base line
			storetest.Eventually(t, time.Second, "the first upstream call ends", func() bool { return vendor.open.Load() == 0 })
			transport.CloseIdleConnections()
			before, seen := runtime.NumGoroutine(), vendor.seen.Load()

			var all sync.WaitGroup
			for range streams {
				all.Go(stream)
			}
			all.Wait()
			storetest.Eventually(t, time.Second, "every upstream call ends", func() bool { return vendor.open.Load() == 0 })
			if got := vendor.seen.Load() - seen; got != streams {
				t.Errorf("the vendor saw %d calls, want %d: none may be repeated", got, streams)
			}
			transport.CloseIdleConnections()
			// Each of the few connections that stay in a pool keeps its reader and writer.
			const pooled = 3 * (streams + 2)
			storetest.Eventually(t, 5*time.Second, "goroutines end", func() bool { return runtime.NumGoroutine() <= before+pooled })
		})
	}
	storetest.Eventually(t, time.Second, "no call counts as active", func() bool { return active(t, s) == 0 })
}

// metric sums a metric over those of its series whose labels hold the text.
func metric(t *testing.T, s *servertest.Instance, name, text string) (sum float64) {
	t.Helper()
	families, err := s.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if strings.Contains(m.String(), text) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// active counts the upstream calls in flight.
func active(t *testing.T, s *servertest.Instance) float64 {
	t.Helper()
	return metric(t, s, "ktms_active_requests", "")
}

func TestAClientThatLeavesBeforeTheFirstByteEndsTheUpstreamCall(t *testing.T) {
	vendor := &endless{silent: true}
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", vendor.serve(t))}})
	client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, connecthttp.WithGRPC()))
	for name, call := range map[string]func(context.Context){
		"grpc unary": func(ctx context.Context) { _, _ = client.GenerateText(ctx, lowRequest) },
		"grpc stream": func(ctx context.Context) {
			if stream, err := client.GenerateTextStream(ctx, &ktmsv1.GenerateTextStreamRequest{Request: lowRequest}); err == nil {
				_, _ = stream.Receive()
			}
		},
		"openai unary": func(ctx context.Context) {
			openAICall(ctx, s.HTTP, key, strings.Replace(chatStream, `"stream":true,`, "", 1))
		},
		"openai stream": func(ctx context.Context) { openAICall(ctx, s.HTTP, key, chatStream) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); call(ctx) }()
			storetest.Eventually(t, 5*time.Second, "the vendor is called", func() bool { return vendor.open.Load() == 1 })
			cancel()
			storetest.Eventually(t, time.Second, "the upstream call ends", func() bool { return vendor.open.Load() == 0 })
			<-done
		})
	}
}

func openAICall(ctx context.Context, base, key, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

func TestAnUpstreamThatDiesMidStream(t *testing.T) {
	vendor := &endless{dieAfter: 5}
	base := vendor.serve(t)
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base), servertest.Model("n", base)}})

	t.Run("openai", func(t *testing.T) {
		resp := post(t, s.HTTP, key, json.RawMessage(chatStream))
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("the response itself must end well: %v", err)
		}
		events := strings.Split(strings.TrimSuffix(string(text), "\n\n"), "\n\n")
		var last struct {
			Error struct{ Message, Type, Code string }
		}
		data, _ := strings.CutPrefix(events[len(events)-1], "data: ")
		if err := json.Unmarshal([]byte(data), &last); err != nil || last.Error.Code != string(status.VendorsUnavailable) {
			t.Errorf("the last event is no well-formed error: %s (%v)", data, err)
		}
		if strings.Contains(string(text), "[DONE]") || len(events) != 6 {
			t.Errorf("want five tokens, an error and no [DONE], got %d events: %s", len(events), text)
		}
	})
	t.Run("grpc", func(t *testing.T) {
		client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, connecthttp.WithGRPC()))
		stream, err := client.GenerateTextStream(t.Context(), &ktmsv1.GenerateTextStreamRequest{Request: lowRequest})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for tokens := 0; ; tokens++ {
			_, err := stream.Receive()
			if err == nil {
				continue
			}
			if got := reasonOf(t, err); got != string(status.VendorsUnavailable) || tokens != 5 {
				t.Errorf("got %q after %d tokens, want vendors_unavailable after 5", got, tokens)
			}
			return
		}
	})
	if got := vendor.seen.Load(); got != 2 {
		t.Errorf("the vendor saw %d calls, want one for each stream: no fallback after content", got)
	}
}
