package servertest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/redis"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// patience is how long a test of limits waits for what has to happen, on a machine that is busy with other tests.
const patience = time.Minute

// noon is where the clock of the counters stands: in the middle of a day, in the middle of a month.
var noon = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// What a call of the tests comes to, worked out by hand: "go on" is 4 tokens of frame and 2 of text, an answer has 60,
// and a million tokens cost 2 and 10 USD.
const (
	promptTokens = 6
	answerTokens = 60
	promptNano   = 2000
	answerNano   = 10_000
	callTokens   = promptTokens + answerTokens
	callNano     = promptTokens*promptNano + answerTokens*answerNano
)

// counters are a meter that the test looks into. Their clock stands still: nothing drains and no reservation ends by
// itself.
type counters struct {
	pool.Meter
	clock *pooltest.Clock
}

// onBothMeters runs a test on the counters of one process and on those in Redis, side by side.
func onBothMeters(t *testing.T, test func(t *testing.T, c counters)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		clock := pooltest.NewClock(noon)
		test(t, counters{memory.New(memory.Options{Now: clock.Now}), clock})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		clock := pooltest.NewClock(noon)
		client, err := redis.New(redis.Options{Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience, Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		test(t, counters{client.Meter(), clock})
	})
}

func (c counters) standing(t *testing.T, charge pool.Charge) pool.Standing {
	t.Helper()
	standings, err := c.Read(t.Context(), []pool.Charge{charge})
	if err != nil {
		t.Fatal(err)
	}
	return standings[0]
}

// tokens is what one model's daily budget of a key or user stands at.
func (c counters) tokens(t *testing.T, kind, id, model string) pool.Standing {
	t.Helper()
	return c.standing(t, pool.Charge{Key: pool.Key("tokens", kind, id, model), Window: pool.Window{Limit: pool.MaxAmount, Span: pool.Day}})
}

// money is what a day's spend stands at.
func (c counters) money(t *testing.T, kind, id string) pool.Standing {
	t.Helper()
	return c.standing(t, pool.Charge{Key: pool.Key("spend", kind, "day", id), Window: pool.Window{Limit: pool.MaxAmount, Span: pool.Day}})
}

// used is how much of a rate of so many a minute is used.
func (c counters) used(t *testing.T, limit int64, key ...string) int64 {
	t.Helper()
	return limit - c.standing(t, pool.Charge{Key: pool.Key(key...), Rate: pool.Rate{Limit: limit, Per: time.Minute, Burst: limit - 1}}).Remaining
}

// script is a vendor that does with each model what a test says, and otherwise answers in answerTokens.
type script struct {
	mu     sync.Mutex
	models map[string]behaviour
	asked  map[string][]string
}

// behaviour answers one call.
type behaviour func(w http.ResponseWriter, r *http.Request, stream bool)

func (s *script) on(model string, b behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models[model] = b
}

// bodies are the calls for a model.
func (s *script) bodies(model string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked[model])
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Model  string
		Stream bool
	}
	if err != nil || json.Unmarshal(body, &asked) != nil {
		http.Error(w, "not a call", http.StatusTeapot)
		return
	}
	s.mu.Lock()
	s.asked[asked.Model] = append(s.asked[asked.Model], string(body))
	b := s.models[asked.Model]
	s.mu.Unlock()
	if b == nil {
		b = answer
	}
	b(w, r, asked.Stream)
}

const (
	wholeAnswer = `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":` + answerUsage + `}`
	answerUsage = `{"prompt_tokens":6,"completion_tokens":60,"total_tokens":66}`
	endOfStream = `{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageChunk  = `{"id":"x","choices":[],"usage":` + answerUsage + `}`
)

// answer is a good one.
func answer(w http.ResponseWriter, _ *http.Request, stream bool) {
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer)
		return
	}
	events(w, piece("fine"), endOfStream, usageChunk, "[DONE]")
}

// embed is an answer to a call for embeddings.
func embed(w http.ResponseWriter, _ *http.Request, _ bool) {
	_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":6,"total_tokens":6}}`)
}

// fails is an answer with an error status.
func fails(code int, body string, headers ...string) behaviour {
	return func(w http.ResponseWriter, r *http.Request, _ bool) { says(code, body, headers...)(w, r) }
}

func piece(text string) string {
	return fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`, text)
}

func events(w http.ResponseWriter, data ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, d := range data {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", d)
		_ = http.NewResponseController(w).Flush()
	}
}

// limited is a server with a scripted vendor whose counters a test looks into.
type limited struct {
	*servertest.Instance
	counters
	script *script
	sealer admin.Sealer
	url    string
	log    *callLog
}

// limitedBy starts one; change may be nil.
func limitedBy(t *testing.T, c counters, change func(*server.Options)) *limited {
	t.Helper()
	l := &limited{counters: c, script: &script{models: map[string]behaviour{}, asked: map[string][]string{}}, log: &callLog{byKey: map[string][]callLine{}}}
	upstream := httptest.NewServer(l.script)
	t.Cleanup(upstream.Close)
	l.url = upstream.URL
	options := servertest.Defaults(t)
	options.Meter, options.Log = c.Meter, slog.New(slog.NewJSONHandler(l.log, nil))
	l.sealer = options.Sealer
	if change != nil {
		change(&options)
	}
	l.Instance = servertest.Start(t, options)
	return l
}

// priced is a model at the prices of the tests; change may be nil.
func (l *limited) priced(id string, change func(*ktmsv1.ModelSpec)) *ktmsv1.ModelSpec {
	m := servertest.Model(id, l.url)
	m.PriceInPerMtok, m.PriceOutPerMtok = 2, 10
	if change != nil {
		change(m)
	}
	return m
}

// key mints a client key that may use a vendor.
func (l *limited) key(t *testing.T, name string, change func(*ktmsv1.MintAPIKeyRequest)) string {
	t.Helper()
	req := &ktmsv1.MintAPIKeyRequest{Name: name, Scopes: []string{"generate"}}
	if change != nil {
		change(req)
	}
	minted, err := l.Admin.MintAPIKey(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	l.must(t)(l.Admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: name, Vendor: "openai", PlainKey: servertest.VendorKey}))
	return minted.GetPlainKey()
}

// models puts models into the catalogue, and makes them, in this order, the chain of every call that names none.
func (l *limited) models(t *testing.T, models ...*ktmsv1.ModelSpec) {
	t.Helper()
	rule := &ktmsv1.RuleSpec{Name: "all", Priority: 1, Enabled: true}
	for _, m := range models {
		l.must(t)(l.Admin.UpsertModel(t.Context(), &ktmsv1.UpsertModelRequest{Model: m}))
		rule.Use = append(rule.Use, m.GetId())
	}
	l.must(t)(l.Admin.ReplaceRules(t.Context(), &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{rule}}))
}

// must ends the test when a change is refused.
func (l *limited) must(t *testing.T) func(any, error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (l *limited) caps(t *testing.T, kind, id, period string, nano int64) {
	t.Helper()
	l.must(t)(l.Admin.SetSpendLimit(t.Context(), spends(kind, id, period, nano)))
}

// team makes a team with a budget and returns its organization and its id.
func (l *limited) team(t *testing.T, name string, usd float64) (org, team string) {
	t.Helper()
	o, err := l.Admin.CreateOrganization(t.Context(), &ktmsv1.CreateOrganizationRequest{Name: "org of " + name})
	if err != nil {
		t.Fatal(err)
	}
	org = o.GetOrganization().GetId()
	made, err := l.Admin.CreateTeam(t.Context(), &ktmsv1.CreateTeamRequest{OrgId: org, Name: name, MonthlyBudgetUsd: usd})
	if err != nil {
		t.Fatal(err)
	}
	return org, made.GetTeam().GetId()
}

// spend is what GetSpend says of one period.
func (l *limited) spend(t *testing.T, kind, id, period string) (settled, reserved int64) {
	t.Helper()
	r, err := l.Admin.GetSpend(t.Context(), &ktmsv1.GetSpendRequest{SubjectType: kind, SubjectId: id})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.GetWindows() {
		if w.GetPeriod() == period {
			return w.GetSpentNanousd() - w.GetReservedNanousd(), w.GetReservedNanousd()
		}
	}
	t.Fatalf("%s %s has no %s", kind, id, period)
	return 0, 0
}

// settles waits until nothing of a subject's spend is reserved, and returns what is settled.
func (l *limited) settles(t *testing.T, kind, id, period string) (nano int64) {
	t.Helper()
	storetest.Eventually(t, patience, "nothing is reserved for "+kind+" "+id, func() bool {
		settled, reserved := l.spend(t, kind, id, period)
		nano = settled
		return reserved == 0
	})
	return nano
}

// callLine is the line that a call leaves in the log.
type callLine struct {
	Msg, Key, Model, Reason string
	Attempts                int
	Input                   int64 `json:"input_tokens"`
	Output                  int64 `json:"output_tokens"`
	Cost                    int64 `json:"cost_nanousd"`
	Estimated, Unmetered    bool
	MaybeBilled             bool `json:"maybe_billed"`
}

// callLog is a log that keeps the lines of calls, by key.
type callLog struct {
	mu    sync.Mutex
	byKey map[string][]callLine
	// lost are the lines of bookings that were given up.
	lost []string
}

// Write takes one line.
func (l *callLog) Write(text []byte) (int, error) {
	var line callLine
	if bytes.Contains(text, []byte(`"msg":"call"`)) && json.Unmarshal(text, &line) == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.byKey[line.Key] = append(l.byKey[line.Key], line)
	}
	if bytes.Contains(text, []byte("not booked")) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = append(l.lost, string(text))
	}
	return len(text), nil
}

// lines are those of a key's calls so far.
func (l *limited) lines(key string) []callLine {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	return slices.Clone(l.log.byKey[key])
}

// line waits for the only line of a key.
func (l *limited) line(t *testing.T, key string) callLine {
	t.Helper()
	var lines []callLine
	storetest.Eventually(t, patience, "the call of "+key+" is in the log", func() bool {
		lines = l.lines(key)
		return len(lines) > 0
	})
	if len(lines) != 1 {
		t.Fatalf("%s left %d lines: %+v", key, len(lines), lines)
	}
	return lines[0]
}
