package servertest_test

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
	"github.com/ai-process/ktms/vendors"
)

func TestShutdownLetsCallsInFlightFinish(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	_, base := record(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		says(200, okAnswer)(w, r)
	})
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base)}})
	answered := make(chan error, 1)
	client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, connecthttp.WithGRPC()))
	go func() {
		_, err := client.GenerateText(context.WithoutCancel(t.Context()), lowRequest)
		answered <- err
	}()
	<-arrived
	s.Stop()
	storetest.Eventually(t, 5*time.Second, "new connections are refused", func() bool {
		resp, err := http.Get(s.HTTP + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err != nil
	})
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
}

// panicking is a vendor with a bug.
type panicking struct{ afterContent bool }

func (panicking) Generate(context.Context, vendors.Target, *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	panic("canary-bug")
}

func (panicking) Fields(_, _ string) vendors.Table { return nil }

func (p panicking) Stream(context.Context, vendors.Target, *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	return func(yield func(vendors.Event, error) bool) {
		if p.afterContent {
			yield(vendors.Event{Head: &vendors.Head{}}, nil)
			yield(vendors.Event{Chunk: &ktmsv1.GenerateTextChunk{Delta: "half"}}, nil)
		}
		panic("canary-bug")
	}
}

func TestAPanicCostsOneCallAndShowsNothing(t *testing.T) {
	for _, afterContent := range []bool{false, true} {
		log := &safeBuffer{}
		options := servertest.Defaults(t)
		options.Log = slog.New(slog.NewTextHandler(log, nil))
		options.Vendors[vendors.OpenAI] = panicking{afterContent}
		s := servertest.Start(t, options)
		key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", "http://127.0.0.1:1")}})
		for name, protocol := range map[string][]connecthttp.Option{"grpc": {connecthttp.WithGRPC()}, "grpc-web": {connecthttp.WithGRPCWeb()}, "connect": nil} {
			client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, protocol...))
			_, err := client.GenerateText(t.Context(), lowRequest)
			wantCode(t, name+" unary", err, connect.CodeInternal)
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("%s shows the panic: %v", name, err)
			}
			stream, err := client.GenerateTextStream(t.Context(), &ktmsv1.GenerateTextStreamRequest{Request: lowRequest})
			for err == nil {
				_, err = stream.Receive()
			}
			if connect.CodeOf(err) == 0 || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s stream: %v", name, err)
			}
		}
		code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"auto","messages":[{"role":"user","content":"x"}]}`)
		if code != 500 || !strings.Contains(text, `"code":"internal"`) || strings.Contains(text, "canary") {
			t.Errorf("openai unary: %d %s", code, text)
		}
		resp := post(t, s.HTTP, key, map[string]any{"model": "auto", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "x"}}})
		whole, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if strings.Contains(string(whole), "[DONE]") || strings.Contains(string(whole), "canary") || afterContent != (err != nil) {
			t.Errorf("openai stream (after content: %v): %d %s, %v", afterContent, resp.StatusCode, whole, err)
		}
		if !strings.Contains(log.String(), "canary-bug") || !strings.Contains(log.String(), "panicking") {
			t.Errorf("the log must name the bug and where it is: %s", log)
		}
		if got := active(t, s); got != 0 {
			t.Errorf("%v calls count as active after the panics", got)
		}
	}
}
