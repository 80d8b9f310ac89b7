package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// The widest admission has every counter that one attempt can have: two rates of the key, two of the model, two budgets,
// five spend limits. A window is two keys of Redis, and a rate one.
const (
	rateCounters   = 4
	windowCounters = 7
	widestKeys     = rateCounters + 2*windowCounters
)

// TestLimits_CostOneRoundTripBeforeTheVendorAndOneAfter lists what a server asks Redis for each call, under every limit at
// once. The vendor leaves its mark in the list when a call arrives there.
func TestLimits_CostOneRoundTripBeforeTheVendorAndOneAfter(t *testing.T) {
	redis := pooltest.StartRedis(t)
	p := startProcess(t, admit.DefaultLease, map[string]string{
		"DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "ktms.db"), "REDIS_ADDR": redis.Addr, "CIRCUIT_BREAKER_ENABLED": "false",
	})
	upstream := httptest.NewServer(marking{t, redis.Addr})
	t.Cleanup(upstream.Close)
	limited, free := limitEverything(t, p.Instance, upstream.URL)

	const (
		oneAttempt    = "question vendor question"
		threeAttempts = oneAttempt + " " + oneAttempt + " " + oneAttempt // one is tried again in place, then the next of the chain
	)
	kinds := []struct{ key, path, body, want string }{
		{limited, "/v1/chat/completions", `"model":"good"`, oneAttempt},
		{limited, "/v1/chat/completions", `"model":"good","stream":true`, oneAttempt},
		{limited, "/v1/embeddings", `"model":"vectors"`, oneAttempt},
		{limited, "/v1/chat/completions", `"model":"auto"`, threeAttempts},
		{free, "/v1/chat/completions", `"model":"unlimited"`, "vendor"},
	}
	type made struct{ id, what, want string }
	var calls []made
	call := func(key, path, body, want string) {
		t.Helper()
		said := fmt.Sprintf(`"go on, call-%d."`, len(calls))
		if path == "/v1/embeddings" {
			body += `,"input":` + said
		} else {
			body += `,"max_tokens":100,"messages":[{"role":"user","content":` + said + `}]`
		}
		status, header, text := send(t, http.MethodPost, p.HTTP+path, key, `{"user":"somebody",`+body+`}`)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", body, status, text)
		}
		calls = append(calls, made{header.Get("X-KTMS-Request-Id"), body, want})
	}
	call(limited, kinds[0].path, kinds[0].body, "") // makes the scripts known
	storetest.Eventually(t, patience, "the first call is booked", func() bool {
		w, err := spend(t.Context(), p.Instance, "limited")
		return err == nil && w.GetSpentNanousd() > 0 && w.GetReservedNanousd() == 0
	})
	questions := monitor(t, redis.Addr)
	for range 3 {
		for _, kind := range kinds {
			call(kind.key, kind.path, kind.body, kind.want)
		}
	}
	p.terminate(t)
	p.ends(t) // so that everything is booked
	asked := questions()

	ofCalls := 0
	for n, c := range calls[1:] {
		var seen []string
		for _, line := range asked {
			switch {
			case isScript(line) && strings.Contains(line, `"`+c.id+`/`):
				seen = append(seen, "question")
			case strings.Contains(line, fmt.Sprintf(`"call-%d."`, n+1)):
				seen = append(seen, "vendor")
			}
		}
		ofCalls += strings.Count(c.want, "question")
		if got := strings.Join(seen, " "); got != c.want {
			t.Errorf("the order of things for a call with %s is\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
	scripts, widest := 0, 0
	for _, line := range asked {
		switch {
		case isScript(line):
			scripts++
			widest = max(widest, keysOf(t, line))
		case !aside.MatchString(line):
			t.Errorf("Redis is asked something else: %s", line)
		}
	}
	if scripts != ofCalls {
		t.Errorf("Redis is asked %d times, want the %d for the calls", scripts, ofCalls)
	}
	if widest < widestKeys {
		t.Errorf("the widest question has %d keys, want all %d of an admission under every limit", widest, widestKeys)
	}
}

// limitEverything sets every limit there is for one key, and none for another one with a model of its own.
func limitEverything(t testing.TB, s *servertest.Instance, url string) (limited, free string) {
	t.Helper()
	const plenty = 1 << 30
	org, err := s.Admin.CreateOrganization(t.Context(), &ktmsv1.CreateOrganizationRequest{Name: "org"})
	if err != nil {
		t.Fatal(err)
	}
	orgID := org.GetOrganization().GetId()
	team, err := s.Admin.CreateTeam(t.Context(), &ktmsv1.CreateTeamRequest{OrgId: orgID, Name: "team", MonthlyBudgetUsd: 1000})
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, req := range []*ktmsv1.MintAPIKeyRequest{
		{Name: "limited", OrgId: orgID, TeamId: team.GetTeam().GetId(), Policy: &ktmsv1.APIKeyPolicy{RpmLimit: plenty, TpmLimit: plenty}},
		{Name: "free"},
	} {
		req.Scopes = []string{"generate"}
		minted, err := s.Admin.MintAPIKey(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		keys[req.GetName()] = minted.GetPlainKey()
		must(t)(s.Admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: req.GetName(), Vendor: "openai", PlainKey: servertest.VendorKey}))
	}
	for _, id := range []string{"bad", "good", "vectors", "unlimited"} {
		m := servertest.Model(id, url)
		if id == "vectors" {
			m.Capabilities = []string{"embedding"}
		}
		if id != "unlimited" {
			m.PriceInPerMtok, m.PriceOutPerMtok, m.Rpm, m.DailyTokensPerKey, m.DailyTokensPerUser = 1, 2, plenty, plenty, plenty
		}
		must(t)(s.Admin.UpsertModel(t.Context(), &ktmsv1.UpsertModelRequest{Model: m}))
		if id != "unlimited" {
			must(t)(s.Admin.SetUserRateLimit(t.Context(), &ktmsv1.SetUserRateLimitRequest{
				UserRateLimit: &ktmsv1.UserRateLimit{UserId: "somebody", ModelId: id, Rpm: plenty}}))
		}
	}
	rule := &ktmsv1.RuleSpec{Name: "all", Priority: 1, Enabled: true, Use: []string{"bad", "good"}}
	must(t)(s.Admin.ReplaceRules(t.Context(), &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{rule}}))
	for kind, id := range map[string]string{"key": "limited", "user": "somebody"} {
		for _, period := range []string{"day", "month"} {
			must(t)(s.Admin.SetSpendLimit(t.Context(), &ktmsv1.SetSpendLimitRequest{SpendLimit: &ktmsv1.SpendLimit{
				SubjectType: kind, SubjectId: id, Period: period, LimitNanousd: 1 << 40}}))
		}
	}
	return keys["limited"], keys["free"]
}

// marking is a vendor that tells Redis of each call. It fails for one of its models.
type marking struct {
	*testing.T
	redis string
}

var saidCall = regexp.MustCompile(`call-\d+\.`)

func (v marking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	if _, err := pooltest.Command(v.redis, "ECHO", saidCall.FindString(text)); err != nil {
		v.Error(err)
	}
	switch {
	case strings.Contains(text, `"model":"bad"`):
		http.Error(w, `{"error":{"message":"broken"}}`, http.StatusInternalServerError)
	case strings.Contains(text, `"input"`):
		_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":6,"total_tokens":6}}`)
	case strings.Contains(text, `"stream":true`):
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+tillWord+"\n\ndata: "+tillEnd+"\n\n"+`data: {"id":"x","choices":[],"usage":`+tillUsage+"}\n\ndata: [DONE]\n\n")
	default:
		_, _ = io.WriteString(w, tillAnswer)
	}
}

// monitor lists what Redis is asked from now on, until the result is called. What scripts do themselves is left out.
func monitor(t *testing.T, address string) (stop func() []string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * patience))
	fmt.Fprint(conn, "MONITOR\r\n")
	lines := bufio.NewReader(conn)
	if line, err := lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatal(line, err)
	}
	return func() (asked []string) {
		t.Helper()
		const end = "the end of the list"
		if _, err := pooltest.Command(address, "ECHO", end); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := lines.ReadString('\n')
			switch {
			case err != nil:
				t.Fatal(err)
			case strings.Contains(line, end):
				return asked
			case !strings.Contains(line, " lua]"):
				asked = append(asked, line)
			}
		}
	}
}

var (
	// evalsha is how a script is asked for: its hash, how many keys follow, and these.
	evalsha = regexp.MustCompile(`"(?i:EVALSHA)" "[^"]*" "(\d+)"`)
	// aside is what connections say on their own account, and the marks of the vendor.
	aside = regexp.MustCompile(`"(?i:HELLO|CLIENT|PING|ECHO)"`)
)

func isScript(line string) bool { return evalsha.MatchString(line) }

// keysOf is how many keys a script is given.
func keysOf(t *testing.T, line string) int {
	t.Helper()
	n, err := strconv.Atoi(evalsha.FindStringSubmatch(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
