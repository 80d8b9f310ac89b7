package openai

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
	"github.com/ai-process/ktms/vendors/vendortest"
)

const (
	okBody   = `{"id":"i","choices":[{"message":{"content":"hi","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2},"system_fingerprint":"fp_ollama"}`
	okStream = "data: {\"id\":\"i\",\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n"
)

func TestHeaders(t *testing.T) {
	for vendor, want := range map[string]struct{ authorization, apiKey string }{
		vendors.OpenAI: {"Bearer the-key", ""}, vendors.Ollama: {"Bearer the-key", ""}, vendors.Azure: {"", "the-key"},
	} {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(200, okBody), vendortest.Respond(200, okStream))
		target := vendors.Target{Vendor: vendor, Model: "m", BaseURL: up.URL + "/?api-version=2024-10-21", Key: vendors.NewSecret("the-key")}
		v := newVendor(t)
		if _, err := v.Generate(t.Context(), target, simple()); err != nil {
			t.Fatal(err)
		}
		if s := read(t, v, target, simple()); s.err != nil {
			t.Fatal(s.err)
		}
		for i, accept := range []string{"application/json", "text/event-stream"} {
			call := up.Await(i)
			h := call.Header
			if h.Get("Authorization") != want.authorization || h.Get("Api-Key") != want.apiKey || h.Get("Accept") != accept ||
				h.Get("User-Agent") != "ktms/test" || h.Get("Content-Type") != "application/json" || h.Get("Accept-Encoding") != "" {
				t.Errorf("%s: %v", vendor, h)
			}
			path := "/v1/chat/completions"
			if vendor == vendors.Azure {
				path = "/openai/deployments/m/chat/completions"
			}
			if call.Path != path || call.Query != "api-version=2024-10-21" {
				t.Errorf("%s: %s?%s", vendor, call.Path, call.Query)
			}
		}
	}
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Respond(200, okBody))
	if _, err := New(Options{}).Generate(t.Context(), vendors.Target{Vendor: vendors.Ollama, BaseURL: up.URL}, simple()); err != nil {
		t.Fatal(err)
	}
	if h := up.Await(0).Header; h.Get("Authorization") != "" || h.Get("User-Agent") != "ktms" {
		t.Errorf("without a key: %v", h)
	}
}

// A server that does not stream answers at once; the caller sees a stream all the same.
func TestStreamOfOnePiece(t *testing.T) {
	for _, contentType := range []string{"application/json", "text/event-stream", ""} {
		up := vendortest.NewUpstream(t)
		up.Reply(vendortest.Respond(200, "\n\n "+okBody, "Content-Type", contentType))
		req := simple()
		req.N = new(int32(3))
		s := read(t, newVendor(t), vendors.Target{Vendor: vendors.Ollama, BaseURL: up.URL}, req)
		if s.err != nil || s.text != "hi" || s.finish != "tool_calls" || s.usage.GetOutput() != 2 || len(s.calls) != 1 ||
			s.chunks[0].GetVendorResponseId() != "i" || s.head == nil || len(s.head.Dropped) != 1 {
			t.Errorf("%q: %+v", contentType, s)
		}
	}
}

// A whole answer says things that belong to no choice; a stream made of it says them, too.
func TestMembersOfAnAnswerInOnePiece(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Respond(200, `{"id":"i","citations":["c"],"choices":[{"message":{"content":"hi","audio":{"id":"a"}},"finish_reason":"stop"}]}`))
	s := read(t, newVendor(t), vendors.Target{Vendor: vendors.OpenAI, BaseURL: up.URL}, simple())
	if s.err != nil || s.chunks[0].GetExtraJson() != `{"audio":{"id":"a"},"citations":["c"]}` {
		t.Errorf("%+v", s)
	}
}

// Some servers end a stream with a usage of zeros; what was counted before still counts.
func TestAnEmptyUsageIsNone(t *testing.T) {
	const empty = `"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`
	up := vendortest.NewUpstream(t)
	up.Reply(
		vendortest.Respond(200, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\n"+
			"data: {\"choices\":[],"+empty+"\n\ndata: [DONE]\n\n", "Content-Type", "text/event-stream"),
		vendortest.Respond(200, `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],`+empty),
	)
	to := vendors.Target{Vendor: vendors.OpenAI, BaseURL: up.URL}
	if s := read(t, newVendor(t), to, simple()); s.err != nil || s.usage.GetOutput() != 5 {
		t.Errorf("%+v", s)
	}
	if answer, err := newVendor(t).Generate(t.Context(), to, simple()); err != nil || answer.Response.GetUsage() != nil {
		t.Errorf("%v %v", answer, err)
	}
}

// Waiting helps against a rate, not against an empty account.
func TestARefusalIsNotWaitedFor(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(vendortest.Respond(429, `{"error":{"message":"pay","code":"insufficient_quota"}}`, "Retry-After", "20"))
	_, err := newVendor(t).Generate(t.Context(), vendors.Target{Vendor: vendors.OpenAI, BaseURL: up.URL}, simple())
	if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Denied || e.RetryAfter != 0 {
		t.Errorf("%+v", err)
	}
}

// Unfinished business after [DONE] holds nobody up.
func TestStreamThatIsNotClosed(t *testing.T) {
	up := vendortest.NewUpstream(t)
	up.Reply(func(x *vendortest.Exchange) {
		x.Start(http.StatusOK, "Content-Type", "text/event-stream")
		x.Write(okStream, "data: [DONE]\n\n")
		x.Stall()
	})
	s := read(t, newVendor(t), vendors.Target{Vendor: vendors.OpenAI, BaseURL: up.URL}, simple())
	if s.err != nil || s.text != "hi" {
		t.Errorf("%+v", s)
	}
	select {
	case <-up.Await(0).Gone():
	case <-time.After(5 * time.Second):
		t.Error("the connection is still open")
	}
}

func TestLimits(t *testing.T) {
	const short, long = 30 * time.Millisecond, time.Minute
	for _, c := range []struct {
		name   string
		limits transport.Limits
		reply  vendortest.Reply
	}{
		{"first byte", transport.Limits{FirstByte: short}, func(x *vendortest.Exchange) { x.Stall() }},
		{"first byte after the headers", transport.Limits{FirstByte: short}, func(x *vendortest.Exchange) {
			x.Start(http.StatusOK, "Content-Type", "text/event-stream")
			x.Stall()
		}},
		{"silence", transport.Limits{FirstByte: long, Silence: short}, func(x *vendortest.Exchange) {
			x.Start(http.StatusOK, "Content-Type", "text/event-stream")
			x.Write("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n")
			x.Stall()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := vendortest.NewUpstream(t)
			up.Reply(c.reply)
			v := New(Options{Limits: c.limits})
			t.Cleanup(v.CloseIdleConnections)
			target := vendors.Target{Vendor: vendors.OpenAI, BaseURL: up.URL}
			s := read(t, v, target, simple())
			_, err := v.Generate(t.Context(), target, simple())
			for _, err := range []error{s.err, err} {
				e, ok := err.(*vendors.Error)
				if !ok || e.Kind != vendors.Unavailable || !strings.Contains(e.Message, "timed out") {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

func TestModelWithoutAnEndpoint(t *testing.T) {
	for _, vendor := range []string{vendors.Azure, vendors.Ollama, vendors.Local} {
		_, err := New(Options{}).Generate(t.Context(), vendors.Target{Vendor: vendor, Model: "m"}, simple())
		if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Denied || e.Vendor != vendor {
			t.Errorf("%s: %v", vendor, err)
		}
	}
}
