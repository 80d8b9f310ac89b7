package redis

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// patience is how long what should happen at once may take on a machine that is busy with other tests.
const patience = time.Minute

// open makes a client that is closed when the test ends.
func open(t testing.TB, options Options) *Client {
	t.Helper()
	client, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// fresh makes a client on the shared server that sees no other test's keys.
func fresh(t testing.TB) *Client {
	t.Helper()
	return open(t, Options{Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience})
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// tally counts what failed, by operation.
type tally struct {
	mu     sync.Mutex
	failed map[string]int
}

func (f *tally) add(operation string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = map[string]int{}
	}
	f.failed[operation]++
}

func (f *tally) of(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed[operation]
}

// spend is a charge on a month's window with room for everything.
func spend(amount int64) pool.Charge {
	return pool.Charge{Key: "spend", Reason: "spend", Amount: amount, Window: pool.Window{Limit: pool.MaxAmount, Span: pool.Month}}
}

// requests is a charge of one on a rate with room for everything.
func requests() pool.Charge {
	return pool.Charge{Key: "rpm", Reason: "rpm", Amount: 1, Rate: pool.Rate{Limit: 1_000_000, Per: time.Minute, Burst: 999_999}}
}

// settled is what is settled of the window of a charge.
func settled(t testing.TB, m pool.Meter, charge pool.Charge) int64 {
	t.Helper()
	standings, err := m.Read(context.Background(), []pool.Charge{charge})
	if err != nil {
		t.Fatal(err)
	}
	return standings[0].Settled
}

func TestSuite(t *testing.T) {
	pooltest.Run(t, pooltest.Opener{Fresh: func(t *testing.T, clock *pooltest.Clock) pool.Meter {
		return open(t, Options{
			Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience, Now: clock.Now,
		}).Meter()
	}})
}
