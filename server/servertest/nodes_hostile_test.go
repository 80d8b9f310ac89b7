package servertest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// TestPool_ACountThatCannotBe: a machine that claims to have counted more tokens than there can be does not lock its caller
// out, and a large count that may be right is believed.
func TestPool_ACountThatCannotBe(t *testing.T) {
	t.Parallel()
	const (
		huge   = `"usage":{"prompt_tokens":1152921504606846976,"completion_tokens":4611686018427387904,"total_tokens":9223372036854775807,"prompt_tokens_details":{"cached_tokens":1152921504606846976},"completion_tokens_details":{"reasoning_tokens":4611686018427387904}}`
		honest = `"usage":{"prompt_tokens":1200,"completion_tokens":30000,"completion_tokens_details":{"reasoning_tokens":29000}}`
		budget = 200_000
	)
	for name, test := range map[string]struct {
		usage    string
		believed bool
	}{"huge": {huge, false}, "honest": {honest, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPoolWorld(t, func(m *ktmsv1.ModelSpec) {
				m.DailyTokensPerKey, m.Capabilities = budget, []string{"embedding"}
			})
			w.engine(t, "n", func(rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				switch {
				case strings.HasSuffix(r.URL.Path, "/embeddings"):
					_, _ = io.WriteString(rw, `{"data":[{"index":0,"embedding":[1]}],`+test.usage+`}`)
				case strings.Contains(string(body), "cut"): // a stream that breaks after it was counted
					rw.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(rw, `data: {"id":"i","choices":[{"delta":{"content":"hi"}}],`+test.usage+"}\n\n")
				case strings.Contains(string(body), `"stream":true`):
					rw.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(rw, `data: {"id":"i","choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\n"+
						`data: {"id":"i","choices":[],`+test.usage+"}\n\ndata: [DONE]\n\n")
				default:
					_, _ = io.WriteString(rw, `{"id":"i","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],`+test.usage+`}`)
				}
			})
			for _, more := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`, `,"max_tokens":30000`} {
				code, _, body := w.ask(t, "home", more)
				if shown := strings.Contains(body, `"completion_tokens":30000`); code != http.StatusOK || shown != test.believed ||
					strings.Contains(body, "611686018427387904") || strings.Contains(body, "152921504606846976") {
					t.Errorf("%q: %d %s", more, code, body)
				}
			}
			_, _, _ = w.ask(t, "home", `,"stream":true,"stop":"cut"`)
			if code, _, body := request(t, http.MethodPost, w.HTTP+"/v1/embeddings", w.key, `{"model":"home","input":"hello"}`); code != http.StatusOK {
				t.Errorf("embeddings: %d %s", code, body)
			}
			if code, _, body := w.ask(t, "home", ""); code != http.StatusOK {
				t.Errorf("the caller is locked out: %d %s", code, body)
			}
		})
	}
}
