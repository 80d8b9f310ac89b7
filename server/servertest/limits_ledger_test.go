package servertest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store"
)

// exitsAtOnce is how many exits are tried at the same time. Most of them wait for something.
const exitsAtOnce = 16

// runExits makes each exit over HTTP and gRPC, in one piece and as a stream, and looks at every ledger at the end again.
func runExits(t *testing.T, l *limited, all []exit) {
	for _, limit := range [][2]string{{"key", "day"}, {"key", "month"}, {"user", "day"}} {
		l.caps(t, limit[0], "*", limit[1], farNano)
	}
	org, team := l.team(t, "all", farNano/1e9)
	// All in one transaction, since there is much to configure.
	var tried []*oneExit
	rules := []*ktmsv1.RuleSpec{{Name: "all", Priority: 1, Enabled: true}}
	_, err := l.Store.Update(t.Context(), func(ctx context.Context, tx store.Tx) error {
		for _, x := range l.oneByOne(all) {
			if err := x.arrange(ctx, tx, org, team); err != nil {
				return err
			}
			tried = append(tried, x)
			rules[0].Use = x.models
			rules = append(rules, &ktmsv1.RuleSpec{Name: x.name, Priority: int32(len(tried) + 1), Use: x.models, Enabled: true,
				Attributes: map[string]string{"user_id": "u-" + x.name}})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.must(t)(l.Admin.ReplaceRules(t.Context(), &ktmsv1.ReplaceRulesRequest{Rules: rules}))
	var running sync.WaitGroup
	turns := make(chan struct{}, exitsAtOnce)
	for _, x := range tried {
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(fmt.Sprintf("%s/%s/stream %v", x.exit.name, x.through, x.stream), x.run)
		})
	}
	running.Wait()
	t.Run("at the end", func(t *testing.T) {
		sum := int64(0)
		for _, x := range tried {
			x.check(t)
			sum += x.nano()
		}
		if got, reserved := l.spend(t, "team", team, "month"); got != sum || reserved != 0 {
			t.Errorf("the team's spend stands at %d, with %d reserved; want %d", got, reserved, sum)
		}
	})
}

// oneByOne tells the doors and kinds of calls apart.
func (l *limited) oneByOne(all []exit) (tried []*oneExit) {
	for _, e := range all {
		for _, through := range []string{"openai", "grpc"} {
			for _, mode := range []string{"unary", "stream"} {
				if (e.only == "" || e.only == mode) && (e.door == "" || e.door == through) {
					tried = append(tried, &oneExit{exit: e, limited: l, name: fmt.Sprint("x", len(tried)), through: through,
						stream: mode == "stream", arrived: make(chan struct{}, 1)})
				}
			}
		}
	}
	return tried
}

// oneExit is an exit through one door, with a key, a user and models of its own. The team is that of all.
type oneExit struct {
	exit
	*limited
	name, key string
	models    []string
	through   string
	stream    bool
	arrived   chan struct{}
}

// arrange configures what the exit needs.
func (x *oneExit) arrange(ctx context.Context, tx store.Tx, org, team string) error {
	x.key = admin.NewPlainKey()
	key := admin.NewKey(x.name, x.key, []string{"generate"})
	key.OrgID, key.TeamID, key.Policy = org, team, &ktmsv1.APIKeyPolicy{RpmLimit: farRPM, TpmLimit: farTokens}
	if err := tx.InsertKey(ctx, key); err != nil {
		return err
	}
	for i, behave := range []behaviour{nil, x.second} {
		if i == 1 && behave == nil {
			break
		}
		m := x.priced(fmt.Sprint(x.name, "-", i), func(m *ktmsv1.ModelSpec) {
			m.Rpm, m.DailyTokensPerKey, m.DailyTokensPerUser = farRPM, farTokens, farTokens
			if x.embed {
				m.Capabilities = []string{"embedding"}
			}
			if i == 0 && x.change != nil {
				x.change(m)
			}
		})
		if i == 0 && x.vendor != nil {
			behave = x.vendor(func() {
				select {
				case x.arrived <- struct{}{}:
				default: // at a second attempt
				}
			})
		}
		x.script.on(m.GetId(), behave)
		x.models = append(x.models, m.GetId())
		if err := tx.PutModel(ctx, m); err != nil {
			return err
		}
		if err := tx.PutVendorKey(ctx, admin.SealVendorKey(x.sealer, key, m.GetVendor(), servertest.VendorKey)); err != nil {
			return err
		}
	}
	return nil
}

func (x *oneExit) run(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if x.within > 0 {
		ctx, leave = context.WithTimeout(ctx, x.within)
		defer leave()
	}
	a := ask{stream: x.stream, user: "u-" + x.name}
	if x.embed {
		a.embed, a.model = true, x.models[0]
	}
	if x.leaves && x.after > 0 {
		x.read(ctx, t, x.through, x.key, a, x.after)
		leave()
	} else {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if x.through == "openai" {
				x.openai(ctx, t, x.key, a)
			} else {
				x.rpc(connecthttp.WithGRPC())(ctx, t, x.key, a)
			}
		}()
		if x.leaves {
			<-x.arrived
			leave()
		}
		<-ended
	}
	x.checkLine(t)
	x.check(t)
}

func (x *oneExit) nano() int64 { return x.in*promptNano + x.out*answerNano }

// checkLine compares the line in the log.
func (x *oneExit) checkLine(t *testing.T) {
	t.Helper()
	got := x.line(t, x.name)
	reason := len(x.reason) == 0 && got.Reason == ""
	for _, known := range x.reason {
		reason = reason || got.Reason == known
	}
	want := callLine{Msg: "call", Key: x.name, Model: got.Model, Reason: got.Reason, Attempts: x.attempts, Input: x.in, Output: x.out,
		Cost: x.nano(), Estimated: x.estimated, MaybeBilled: x.maybe}
	if x.unsaid {
		want = callLine{Msg: "call", Key: x.name, Reason: got.Reason}
	}
	if !reason || got != want {
		t.Errorf("the log says %+v, want %+v with a reason of %v", got, want, x.reason)
	}
}

// check waits until everything is booked, and compares it with what the exit comes to.
func (x *oneExit) check(t *testing.T) {
	t.Helper()
	var wrong []string
	settled := func() bool {
		wrong = nil
		expect := func(what string, got, want int64) {
			if got != want {
				wrong = append(wrong, fmt.Sprintf("%s stands at %d, want %d", what, got, want))
			}
		}
		for _, limit := range [][3]string{{"key", x.name, "day"}, {"key", x.name, "month"}, {"user", "u-" + x.name, "day"}} {
			money, reserved := x.spend(t, limit[0], limit[1], limit[2])
			expect("spend of "+limit[0]+" by the "+limit[2], money, x.nano())
			expect("what is reserved for "+limit[0]+" by the "+limit[2], reserved, 0)
		}
		for i, model := range x.models {
			tokens := x.in + x.out - x.ofSecond
			if i == 1 {
				tokens = x.ofSecond
			}
			for _, who := range [][2]string{{"key", x.name}, {"user", "u-" + x.name}} {
				s := x.tokens(t, who[0], who[1], model)
				expect("the budget of "+who[0]+" with "+model, s.Settled, tokens)
				expect("what is reserved of it", s.Reserved, 0)
			}
			calls := int64(1)
			if x.free {
				calls = 0
			}
			expect("the rate of "+model, x.used(t, farRPM, "rpm", "key", x.name, model), calls)
		}
		expect("the key's tokens a minute", x.used(t, farTokens, "key_tpm", x.name), x.in+x.out)
		expect("the key's calls a minute", x.used(t, farRPM, "key_rpm", x.name), 1)
		return len(wrong) == 0
	}
	deadline := time.Now().Add(patience)
	for !settled() {
		if time.Now().After(deadline) {
			t.Fatalf("%s", strings.Join(wrong, "; "))
		}
		time.Sleep(5 * time.Millisecond)
	}
}
