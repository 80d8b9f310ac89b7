package redis

import (
	"strings"
	"testing"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// TestCluster runs the suite where a script that touched keys of two nodes would be refused.
func TestCluster(t *testing.T) {
	addresses := pooltest.StartCluster(t)
	pooltest.Run(t, pooltest.Opener{Fresh: func(t *testing.T, clock *pooltest.Clock) pool.Meter {
		return open(t, Options{
			Addr: strings.Join(addresses, ","), KeyPrefix: pooltest.Prefix(t), Timeout: patience, Now: clock.Now,
		}).Meter()
	}})
	t.Run("named by one node", func(t *testing.T) {
		for _, address := range addresses {
			meter := open(t, Options{Addr: address, KeyPrefix: pooltest.Prefix(t), Timeout: patience}).Meter()
			if err := meter.Debit(t.Context(), "a", []pool.Charge{spend(5), requests()}); err != nil {
				t.Fatal(err)
			}
			if got := settled(t, meter, spend(0)); got != 5 {
				t.Errorf("%d are settled, want 5", got)
			}
		}
	})
	t.Run("spread over the nodes", func(t *testing.T) {
		for _, address := range addresses {
			size, err := pooltest.Command(address, "DBSIZE")
			if err != nil || size == "0" {
				t.Errorf("%s has %s keys, %v; the tests' prefixes should be on every node", address, size, err)
			}
		}
	})
}
