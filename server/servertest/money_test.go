package servertest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/pooltest"
)

// The money race: so many calls at once, of which the cap of 1 USD allows so few. The prompt is free and the answer as
// long as max_tokens allows, so that what is reserved is what is spent.
const (
	raceRuns   = 3
	raceCalls  = 200
	raceFits   = 20
	raceTokens = 5000
	raceNano   = raceTokens * answerNano // 0.05 USD
	raceCap    = raceFits * raceNano
)

const raceUsage = `{"prompt_tokens":6,"completion_tokens":5000,"total_tokens":5006}`

// TestMoney_OneProcessKeepsItsCap races calls through every door for the money of one key, on counters in memory. The odd
// runs have a vendor that refuses some, whose money is free for others then. With Redis two processes race, in
// cmd/ktms-server.
func TestMoney_OneProcessKeepsItsCap(t *testing.T) {
	clock := pooltest.NewClock(noon)
	l := limitedBy(t, counters{memory.New(memory.Options{Now: clock.Now}), clock}, nil)
	l.models(t, l.priced("m", func(m *ktmsv1.ModelSpec) { m.PriceInPerMtok = 0 }))
	for i := range raceRuns {
		name := fmt.Sprintf("run-%d", i)
		key := l.key(t, name, nil)
		l.caps(t, "key", name, "day", raceCap)
		vendor := &raceVendor{refuse: i % 2 * raceFits / 2}
		l.script.on("m", vendor.answer)
		buyers := l.buyers(t, key)

		first := buyers.race(t, raceCalls)
		l.settles(t, "key", name, "day")
		second := buyers.race(t, raceCalls-first.served)
		settled := l.settles(t, "key", name, "day")
		if served := first.served + second.served; served != raceFits || vendor.peak != raceFits {
			t.Errorf("%s: %d calls were served, and the vendor had %d open or billed at one time, want exactly %d",
				name, served, vendor.peak, raceFits)
		}
		if told := first.cost + second.cost; settled != told || settled != raceCap {
			t.Errorf("%s: settled are %d nano-USD, callers were told %d, and the cap is %d", name, settled, told, int64(raceCap))
		}
	}
}

// raceVendor keeps books of its own.
type raceVendor struct {
	mu sync.Mutex
	// taken are the calls that are open or billed, peak is the most of them. refuse is how many are still to be refused.
	taken, peak, refuse int
}

func (v *raceVendor) takes() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.peak = max(v.peak, v.taken+1)
	if v.refuse > 0 {
		v.refuse--
		return false
	}
	v.taken++
	return true
}

func (v *raceVendor) answer(w http.ResponseWriter, r *http.Request, stream bool) {
	switch {
	case !v.takes():
		says(400, `{"error":{"message":"not today"}}`)(w, r)
	case stream:
		events(w, piece("fine"), endOfStream, strings.Replace(usageChunk, answerUsage, raceUsage, 1), "[DONE]")
	default:
		says(200, strings.Replace(wholeAnswer, answerUsage, raceUsage, 1))(w, r)
	}
}

// buyers are clients of one key at several doors.
type buyers []func(context.Context) (cost int64, err error)

func (l *limited) buyers(t *testing.T, key string) (all buyers) {
	asked := ask{model: "m", maxTokens: raceTokens}.rpc()
	for _, options := range [][]connecthttp.Option{{connecthttp.WithGRPC()}, {connecthttp.WithGRPCWeb()}, nil} {
		client := ktmsv1connect.NewGatewayServiceClient(l.Client(t, key, options...))
		all = append(all, func(ctx context.Context) (int64, error) {
			r, err := client.GenerateText(ctx, asked)
			return r.GetUsage().GetCostNanousd(), err
		}, func(ctx context.Context) (int64, error) {
			_, cost, err := streamed(ctx, client, asked)
			return cost, err
		})
	}
	for _, stream := range []bool{false, true} {
		all = append(all, func(ctx context.Context) (int64, error) {
			got := l.openai(ctx, t, key, ask{model: "m", maxTokens: raceTokens, stream: stream})
			switch got.http {
			case http.StatusOK:
				return got.cost, nil
			case http.StatusTooManyRequests:
				return 0, connect.NewError(connect.CodeResourceExhausted, got.message)
			default:
				return 0, connect.NewError(connect.CodeInvalidArgument, got.message)
			}
		})
	}
	return all
}

// sold is what became of calls.
type sold struct {
	served int
	cost   int64
}

// race makes so many calls at once.
func (b buyers) race(t *testing.T, n int) (out sold) {
	t.Helper()
	costs, errs := make([]int64, n), make([]error, n)
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() { costs[i], errs[i] = b[i%len(b)](t.Context()) })
	}
	callers.Wait()
	for i, err := range errs {
		switch code := codeOf(err); {
		case err == nil && costs[i] == raceNano:
			out.served++
			out.cost += costs[i]
		case code != connect.CodeResourceExhausted && code != connect.CodeInvalidArgument:
			t.Errorf("a call ended with %d nano-USD, %v", costs[i], err)
		}
	}
	return out
}
