package redis

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// patience is how long a call of a test may take that is not about slowness, on a machine that is busy with other tests.
const patience = 30 * time.Second

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
	return open(t, Options{Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience})
}

func TestSuite(t *testing.T) {
	pooltest.Run(t, pooltest.Opener{Fresh: func(t *testing.T, clock *pooltest.Clock) pool.Meter {
		return open(t, Options{
			Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience, Now: clock.Now,
		}).Meter()
	}})
}
