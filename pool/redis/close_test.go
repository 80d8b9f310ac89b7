package redis

import (
	"bytes"
	"errors"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// leavesNothing waits until no goroutine is left of a client, neither ours nor rueidis'.
func leavesNothing(t *testing.T) {
	t.Helper()
	var left string
	defer func() {
		if t.Failed() {
			t.Log(left)
		}
	}()
	eventually(t, "no goroutine of a client is left", func() bool {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
			t.Fatal(err)
		}
		left = ""
		for _, one := range strings.Split(all.String(), "\n\n") {
			if strings.Contains(one, "redis/rueidis") || strings.Contains(one, "redis.(*Client)") {
				left += one + "\n\n"
			}
		}
		return left == ""
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	server := pooltest.StartRedis(t)
	down := pooltest.StartRedis(t)
	down.Stop()
	hung := pooltest.StartRedis(t)
	hung.Pause(t)
	for name, addresses := range map[string]string{
		"connected":   server.Addr,
		"down":        down.Addr,
		"hung":        hung.Addr,
		"cluster":     strings.Join(pooltest.StartCluster(t), ","),
		"nobody knew": "no-such-host.invalid:6379",
	} {
		t.Run(name, func(t *testing.T) {
			client, err := New(Options{Addr: addresses, Timeout: hangs})
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					for range 20 {
						_, _ = client.Meter().Read(t.Context(), []pool.Charge{spend(0), requests()})
					}
				})
			}
			if name == "connected" || name == "cluster" {
				all.Wait()
			}
			client.Close()
			all.Wait()
			if _, err := client.Meter().Read(t.Context(), []pool.Charge{spend(0)}); !errors.Is(err, pool.ErrUnavailable) {
				t.Errorf("a closed client says %v", err)
			}
			client.Close()
			leavesNothing(t)
		})
	}
}

// TestCloseAfterAHang closes what hung in the middle of calls.
func TestCloseAfterAHang(t *testing.T) {
	server := pooltest.StartRedis(t)
	client, err := New(Options{Addr: server.Addr, Timeout: hangs})
	if err != nil {
		t.Fatal(err)
	}
	settled(t, client.Meter(), spend(0))
	server.Pause(t)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { _, _ = client.Meter().Read(t.Context(), []pool.Charge{spend(0)}) })
	}
	started := time.Now()
	client.Close()
	all.Wait()
	if took := time.Since(started); took > hangs+patience {
		t.Errorf("closing took %v", took)
	}
	leavesNothing(t)
}

// TestCloseEndsAttempts closes a client whose server takes the connection and says nothing, for which it would wait for
// minutes.
func TestCloseEndsAttempts(t *testing.T) {
	server := pooltest.StartRedis(t)
	server.Pause(t)
	client, err := New(Options{Addr: server.Addr, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	client.Close()
	if took := time.Since(started); took > patience {
		t.Errorf("closing took %v", took)
	}
	leavesNothing(t)
}
