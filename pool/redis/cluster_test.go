package redis

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestSlotMoves moves the counters to another node of the cluster, which calls follow.
func TestSlotMoves(t *testing.T) {
	addresses := pooltest.StartCluster(t)
	client := open(t, Options{Addr: addresses[0], Timeout: patience})
	meter := client.Meter()
	bookings, err := meter.Admit(t.Context(), "a", time.Hour, []pool.Charge{spend(10), requests()})
	if err != nil {
		t.Fatal(err)
	}
	slot := tell(t, addresses[0], "CLUSTER", "KEYSLOT", client.keys.tag)
	ids, from := map[string]string{}, ""
	for _, address := range addresses {
		ids[address] = tell(t, address, "CLUSTER", "MYID")
		if tell(t, address, "CLUSTER", "COUNTKEYSINSLOT", slot) != "0" {
			from = address
		}
	}
	to := addresses[0]
	if from == to {
		to = addresses[1]
	}
	tell(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
	tell(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
	host, port, _ := net.SplitHostPort(to)
	keys := strings.Fields(tell(t, from, "CLUSTER", "GETKEYSINSLOT", slot, "100"))
	for _, key := range keys {
		tell(t, from, "MIGRATE", host, port, key, "0", "10000")
	}
	// All keys are gone and the slot is not: one is asked to ask there.
	if got, err := meter.Read(t.Context(), []pool.Charge{spend(0)}); err != nil || got[0].Reserved != 10 {
		t.Errorf("%+v, %v on the way; want 10 reserved", got, err)
	}
	tell(t, to, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	tell(t, from, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	if err := meter.Settle(t.Context(), "a", []pool.Actual{{Booking: bookings[0], Came: 7}}); err != nil {
		t.Fatal(err)
	}
	if got := settled(t, meter, spend(0)); got != 7 {
		t.Errorf("%d are settled after the move, want 7", got)
	}
	if n := tell(t, from, "DBSIZE"); n != "0" {
		t.Errorf("%s keys stayed behind", n)
	}
}

// TestClusterLosesItsNamedNode stops the only node that the address names, and then makes the client connect anew.
func TestClusterLosesItsNamedNode(t *testing.T) {
	addresses := pooltest.StartCluster(t)
	for _, address := range addresses {
		tell(t, address, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	client := open(t, Options{Addr: addresses[0], KeyPrefix: keptBySecond(t, addresses), Timeout: hangs})
	meter := client.Meter()
	served := func() bool {
		_, err := meter.Read(t.Context(), []pool.Charge{spend(0)})
		return err == nil
	}
	eventually(t, "calls are served", served)
	if _, err := pooltest.Command(addresses[0], "SHUTDOWN", "NOSAVE"); err == nil {
		t.Fatal("the node does not stop")
	}

	// An answer, even of a node that cannot do what it is asked, is no reason to look for others.
	before := client.connection()
	tell(t, addresses[1], "CONFIG", "SET", "maxmemory", "1")
	eventually(t, "calls fail", func() bool {
		_, err := meter.Admit(t.Context(), "a", time.Minute, []pool.Charge{spend(1)})
		return errors.Is(err, errResting)
	})
	if client.connection() != before {
		t.Error("the connections of a node that answers are given up")
	}
	tell(t, addresses[1], "CONFIG", "SET", "maxmemory", "0")
	eventually(t, "calls are served again", served)

	client.disconnect()
	eventually(t, "calls are served by nodes that the address does not name", served)
	if client.connection() == before {
		t.Error("the client kept its connections")
	}
}

// keptBySecond is a prefix of counters that a cluster's second node keeps.
func keptBySecond(t *testing.T, addresses []string) string {
	t.Helper()
	for {
		prefix := pooltest.Prefix(t)
		keys, err := newKeys(prefix)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := strconv.Atoi(tell(t, addresses[0], "CLUSTER", "KEYSLOT", keys.tag))
		if err != nil {
			t.Fatal(err)
		}
		if slot*len(addresses)/16384 == 1 {
			return prefix
		}
	}
}
