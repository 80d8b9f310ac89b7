package servertest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// spending is a server with one key under a cap, and a model of one USD per million tokens at a scripted vendor.
func spending(t *testing.T, capNano int64, vendor http.HandlerFunc, change func(*ktmsv1.ModelSpec)) (s *servertest.Instance, key string, spent func() *ktmsv1.SpendWindow) {
	t.Helper()
	upstream := httptest.NewServer(vendor)
	t.Cleanup(upstream.Close)
	s = servertest.Start(t, servertest.Defaults(t))
	m := servertest.Model("m", upstream.URL)
	m.PriceInPerMtok, m.PriceOutPerMtok = 1, 1
	if change != nil {
		change(m)
	}
	key = s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{m}})
	if _, err := s.Admin.SetSpendLimit(t.Context(), &ktmsv1.SetSpendLimitRequest{SpendLimit: &ktmsv1.SpendLimit{
		SubjectType: "key", SubjectId: "client", Period: "day", LimitNanousd: capNano}}); err != nil {
		t.Fatal(err)
	}
	return s, key, func() *ktmsv1.SpendWindow {
		t.Helper()
		got, err := s.Admin.GetSpend(t.Context(), &ktmsv1.GetSpendRequest{SubjectType: "key", SubjectId: "client"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetWindows()[0]
	}
}

// postChat makes a call over HTTP; the caller closes the body.
func postChat(ctx context.Context, t *testing.T, s *servertest.Instance, key, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.HTTP+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// aMoment is how long a vendor takes to tell what an answer cost: long enough to see that the caller is gone, and far less
// than it is heard out.
const aMoment = 20 * time.Millisecond

// Whoever leaves once it has seen the answer pays for it, thoughts that nobody sees included, as long as the vendor tells
// soon. A vendor that goes on talking is cut off.
func TestWhoLeavesAfterTheAnswerPaysForIt(t *testing.T) {
	for name, thoughts := range map[string]string{"told at the end": "end", "told all along": "along", "never told": "never"} {
		t.Run(name, func(t *testing.T) {
			usage := `{"prompt_tokens":1000,"completion_tokens":5000,"total_tokens":6000,"completion_tokens_details":{"reasoning_tokens":4990}}`
			gone := make(chan struct{})
			left := make(chan struct{})
			s, key, spent := spending(t, 1e12, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				say := func(event string) {
					fmt.Fprintf(w, "data: %s\n\n", event)
					_ = http.NewResponseController(w).Flush()
				}
				also := ""
				if thoughts == "along" {
					also = `,"usage":` + usage
				}
				say(`{"id":"x","choices":[{"index":0,"delta":{"content":"the whole answer"}}]` + also + `}`)
				<-left
				switch thoughts {
				case "end":
					time.Sleep(aMoment)
					say(`{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
					say(`{"id":"x","choices":[],"usage":` + usage + `}`)
					say(`[DONE]`)
				default:
					for r.Context().Err() == nil {
						say(`{"id":"x","choices":[{"index":0,"delta":{"content":""}}]}`)
						time.Sleep(time.Millisecond)
					}
				}
				close(gone)
			}, nil)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp := postChat(ctx, t, s, key, `{"model":"m","stream":true,"max_tokens":10000,"messages":[{"role":"user","content":"go on"}]}`)
			defer resp.Body.Close()
			for lines := bufio.NewScanner(resp.Body); lines.Scan() && !strings.Contains(lines.Text(), "the whole answer"); {
			}
			leave()
			close(left)
			<-gone
			storetest.Eventually(t, time.Minute, "the call is booked", func() bool { return spent().GetReservedNanousd() == 0 })
			got := spent().GetSpentNanousd()
			if thoughts != "never" && got != 6_000_000 {
				t.Errorf("spent %d nano-USD, want the 6,000,000 of all that was thought", got)
			}
			if thoughts == "never" && (got == 0 || got > 100_000) {
				t.Errorf("spent %d nano-USD, want the prompt and what was said", got)
			}
		})
	}
}

// No more is asked of a model than was reserved for it.
func TestMaxTokensBeyondTheModelIsCutAndReservedAlike(t *testing.T) {
	var asked atomic.Int64
	s, key, spent := spending(t, 1_000_000, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var wire struct {
			MaxTokens           int64 `json:"max_tokens"`
			MaxCompletionTokens int64 `json:"max_completion_tokens"`
		}
		_ = json.Unmarshal(body, &wire)
		asked.Store(wire.MaxTokens + wire.MaxCompletionTokens)
		fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":%d}}`, asked.Load())
	}, func(m *ktmsv1.ModelSpec) { m.MaxOutputTokens = 10 })
	resp := postChat(t.Context(), t, s, key, `{"model":"m","max_tokens":60000,"messages":[{"role":"user","content":"go on"}]}`)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || asked.Load() != 10 || resp.Header.Get("X-KTMS-Dropped-Params") != "max_tokens" {
		t.Errorf("HTTP %d, %v, and the vendor was asked for %d tokens, want 10", resp.StatusCode, resp.Header, asked.Load())
	}
	storetest.Eventually(t, time.Minute, "the call is booked", func() bool { return spent().GetReservedNanousd() == 0 })
	if got := spent().GetSpentNanousd(); got != 11_000 {
		t.Errorf("spent %d", got)
	}
}

// A prompt in members that nobody knows counts as any other.
func TestAPromptInUnknownMembersIsHeldToTheCap(t *testing.T) {
	s, key, _ := spending(t, 10_000_000, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`)
	}, nil)
	long := strings.Repeat("many words ", 20_000)
	for name, body := range map[string]string{
		"functions":  `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"functions":[{"name":"f","description":"` + long + `"}]}`,
		"prediction": `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"prediction":{"type":"content","content":"` + long + `"}}`,
		"a message":  `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x","note":"` + long + `"}]}`,
	} {
		resp := postChat(t.Context(), t, s, key, body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: HTTP %d, want 429", name, resp.StatusCode)
		}
	}
}

// Nobody is counted on another key's calls.
func TestNobodyCallsItselfAService(t *testing.T) {
	s, key, _ := spending(t, 1e12, func(http.ResponseWriter, *http.Request) { t.Error("the vendor was asked") }, nil)
	resp := postChat(t.Context(), t, s, key, `{"model":"m","user":"svc:other","messages":[{"role":"user","content":"x"}]}`)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `"param":"user"`) {
		t.Errorf("HTTP %d: %s", resp.StatusCode, text)
	}
}
