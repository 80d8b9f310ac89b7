package servertest_test

import (
	"net/http"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/vendors"
)

// exit is one way in which a call ends, and what it comes to. Tokens and attempts are those of all models together.
type exit struct {
	name string
	// only is "unary" or "stream" where the other makes no sense, door the only one that knows of it.
	only, door string
	// vendor is what the first model does; arrived is called once the caller may leave. second is what another one does
	// after it; nil is none.
	vendor func(arrived func()) behaviour
	second behaviour
	change func(*ktmsv1.ModelSpec)
	// leaves: the caller goes away after so many chunks, or when the vendor has arrived. within is the caller's deadline.
	leaves bool
	after  int
	within time.Duration
	// embed is a call for vectors.
	embed bool

	in, out int64
	// ofSecond is the part of the second model.
	ofSecond         int64
	attempts         int
	estimated, maybe bool
	// free: not even the model's rate counts it.
	free bool
	// unsaid: a call that panics leaves its reason alone in the log.
	unsaid bool
	reason []string
}

// limits of every exit: a key's and a user's spend, a team's, daily tokens, and rates, all far away.
const (
	farTokens  = 1_000_000
	farNano    = 1_000_000_000_000
	farRPM     = 1000
	fiftyWords = 67 // 50 times five characters of 0.265 tokens
	oneWord    = 2
	// vectorTokens is the estimate of what is embedded: eleven characters.
	vectorTokens = 3
)

// does is a vendor that nobody leaves.
func does(b behaviour) func(func()) behaviour { return func(func()) behaviour { return b } }

// stalls says so many words of a stream, and then nothing until its caller is gone. Without words a stream may still have
// begun.
func stalls(words int, begun bool) func(func()) behaviour {
	return func(arrived func()) behaviour {
		return func(w http.ResponseWriter, r *http.Request, stream bool) {
			if stream && (begun || words > 0) {
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
			}
			if stream {
				for range words {
					events(w, piece("word "))
				}
			}
			arrived()
			<-r.Context().Done()
		}
	}
}

// breaks says so many words and cuts the connection.
func breaks(words int) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ bool) {
		for range words {
			events(w, piece("word "))
		}
		panic(http.ErrAbortHandler)
	}
}

// fruitless is an answer of nothing that is counted all the same.
func fruitless(w http.ResponseWriter, r *http.Request, stream bool) {
	if stream {
		events(w, `{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"error"}],"usage":`+answerUsage+`}`)
		return
	}
	says(200, `{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"error"}],"usage":`+answerUsage+`}`)(w, r)
}

// uncounted is an answer without usage.
func uncounted(w http.ResponseWriter, r *http.Request, stream bool) {
	if stream {
		events(w, piece("word "), endOfStream, "[DONE]")
		return
	}
	says(200, `{"choices":[{"index":0,"message":{"role":"assistant","content":"word "},"finish_reason":"stop"}]}`)(w, r)
}

func exits() []exit {
	refusal := `{"error":{"message":"no"}}`
	via := func(vendor string) func(*ktmsv1.ModelSpec) {
		return func(m *ktmsv1.ModelSpec) { m.Vendor = vendor }
	}
	gone := []string{"canceled"}
	late := []string{"deadline_exceeded", "canceled"} // a client that gives up resets its stream, which may come first
	return []exit{
		{name: "an answer", vendor: does(answer), in: promptTokens, out: answerTokens, attempts: 1},
		{name: "an answer that nobody counted", vendor: does(uncounted), in: promptTokens, out: oneWord, attempts: 1, estimated: true},
		{name: "an answer of no use", only: "unary", attempts: 1, in: promptTokens, out: answerTokens, reason: []string{"output_truncated"},
			vendor: does(fails(200, `{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"length"}],"usage":`+answerUsage+`}`))},
		{name: "a wrong request", vendor: does(fails(400, refusal)), attempts: 1, reason: []string{"bad_request"}},
		{name: "a refused credential", vendor: does(fails(401, refusal)), attempts: 1, reason: []string{"vendor_error"}},
		{name: "a vendor's own limit", vendor: does(fails(429, refusal)), attempts: 2, reason: []string{"vendors_unavailable"}},
		{name: "a vendor's fault", vendor: does(fails(500, refusal)), attempts: 2, reason: []string{"vendors_unavailable"}},
		{name: "a failure that is counted", vendor: does(fruitless), in: 2 * promptTokens, out: 2 * answerTokens, attempts: 2,
			reason: []string{"vendors_unavailable"}},
		{name: "an answer after failures that were counted", vendor: does(fruitless), second: answer, in: 3 * promptTokens,
			out: 3 * answerTokens, ofSecond: callTokens, attempts: 3},
		{name: "an answer after failures that were not", vendor: does(fails(500, refusal)), second: answer, in: promptTokens,
			out: answerTokens, ofSecond: callTokens, attempts: 3},
		{name: "a vendor out of reach", attempts: 2, free: true, reason: []string{"vendors_unavailable"},
			change: func(m *ktmsv1.ModelSpec) { m.Endpoint = "http://127.0.0.1:1" }},
		{name: "a stream that breaks", only: "stream", vendor: does(breaks(50)), in: promptTokens, out: fiftyWords, attempts: 1,
			estimated: true, reason: []string{"vendors_unavailable"}},
		{name: "a caller gone while the vendor thinks", vendor: stalls(0, false), leaves: true, in: promptTokens, attempts: 1,
			estimated: true, maybe: true, reason: gone},
		{name: "a caller gone before the first byte", only: "stream", vendor: stalls(0, true), leaves: true, in: promptTokens,
			attempts: 1, estimated: true, maybe: true, reason: gone},
		{name: "a caller gone after one chunk", only: "stream", vendor: stalls(1, true), leaves: true, after: 1, in: promptTokens,
			out: oneWord, attempts: 1, estimated: true, maybe: true, reason: gone},
		{name: "a caller gone after fifty", only: "stream", vendor: stalls(50, true), leaves: true, after: 50, in: promptTokens,
			out: fiftyWords, attempts: 1, estimated: true, maybe: true, reason: gone},
		{name: "a deadline", door: "grpc", vendor: stalls(0, false), within: 5 * time.Second, in: promptTokens, attempts: 1,
			estimated: true, maybe: true, reason: late},
		{name: "a deadline within a stream", only: "stream", door: "grpc", vendor: stalls(50, true), within: 5 * time.Second, in: promptTokens,
			out: fiftyWords, attempts: 1, estimated: true, maybe: true, reason: late},
		{name: "vectors", embed: true, only: "unary", vendor: does(embed), in: promptTokens, attempts: 1},
		{name: "vectors that fail", embed: true, only: "unary", vendor: does(fails(500, refusal)), attempts: 2, reason: []string{"vendors_unavailable"}},
		{name: "vectors that nobody waits for", embed: true, only: "unary", vendor: stalls(0, false), leaves: true, in: vectorTokens, attempts: 1,
			estimated: true, maybe: true, reason: gone},
		{name: "a panic", only: "unary", change: via(vendors.Groq), unsaid: true, reason: []string{"internal"}},
		{name: "a panic before a stream", only: "stream", change: via(vendors.Groq), unsaid: true, reason: []string{"internal"}},
		{name: "a panic within a stream", only: "stream", change: via(vendors.Mistral), in: promptTokens, out: oneWord, unsaid: true, reason: []string{"internal"}},
	}
}

// TestExits_EachIsBookedOnce: however a call ends, what it reserved is free at once, and what it came to stands on its
// spend limits, its budgets and its tokens a minute, and only once.
func TestExits_EachIsBookedOnce(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, func(o *server.Options) {
			o.Vendors[vendors.Groq], o.Vendors[vendors.Mistral] = panicking{}, panicking{afterContent: true}
		})
		runExits(t, l, exits())
	})
}

// TestExits_AVendorThatGoesSilent: nobody knows what it did, which the log says.
func TestExits_AVendorThatGoesSilent(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, func(o *server.Options) { o.UpstreamTimeout = 2 * time.Second })
		silent := []string{"vendors_unavailable"}
		runExits(t, l, []exit{
			{name: "silence", vendor: stalls(0, false), attempts: 2, maybe: true, reason: silent},
			{name: "silence at the beginning of a stream", only: "stream", vendor: stalls(0, true), attempts: 2, in: 2 * promptTokens, estimated: true, maybe: true, reason: silent},
			{name: "silence within a stream", only: "stream", vendor: stalls(50, true), attempts: 1, in: promptTokens, out: fiftyWords, estimated: true, maybe: true, reason: silent},
			{name: "silence, and another model", vendor: stalls(0, false), second: answer, attempts: 3, in: promptTokens, out: answerTokens, ofSecond: callTokens, maybe: true},
		})
	})
}

// TestExits_TheDoorsOwnDeadline is HTTP_API_TIMEOUT.
func TestExits_TheDoorsOwnDeadline(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, func(o *server.Options) { o.APITimeout = 3 * time.Second })
		runExits(t, l, []exit{{name: "the door's deadline", only: "unary", door: "openai", vendor: stalls(0, false), attempts: 1, in: promptTokens,
			estimated: true, maybe: true, reason: []string{"deadline_exceeded"}}})
	})
}
