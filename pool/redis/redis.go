// Package redis keeps the pool in Redis, for any number of replicas: a single server, Sentinel, or a cluster.
//
// Everything is decided by scripts, one for each operation, on Redis' own clock. All keys carry one hash tag, so a
// cluster keeps them on one node and a script may touch any of them.
package redis

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// DefaultTimeout bounds a call when Options do not.
const DefaultTimeout = 500 * time.Millisecond

// Options say where Redis is and how to use it.
type Options struct {
	// Addr is host:port, several of them separated by commas for a cluster, or a URL: redis://user:password@host:port/db,
	// rediss:// for TLS. Of a URL, addr=host:port names further nodes, and master_set=name says that they are Sentinels.
	Addr string
	// Password and DB count where the address is no URL, or leaves them out.
	Password string
	DB       int
	// KeyPrefix begins every key, so that several installations may share one Redis. It has no braces.
	KeyPrefix string
	// Timeout bounds each call, and how long it waits for a connection, which may take longer to be made. Defaults to
	// 500 ms.
	Timeout time.Duration
	// Log hears when Redis is gone and when it is back. Defaults to no log.
	Log *slog.Logger
	// Failed hears of each call that failed: admit, settle, renew, debit or read of the meter; register, beat, remove, drain,
	// reseal, fleet, loads, holders, choose, begun, renew_nodes or release of the nodes. Calls that were not tried are not
	// among them.
	Failed func(operation string)
	// Now is the clock of tests, which replaces Redis' own.
	Now func() time.Time
}

// Client is a connection to Redis that comes and goes with the server. It is safe for concurrent use.
type Client struct {
	connect rueidis.ClientOption
	secrets []string
	timeout time.Duration
	log     *slog.Logger
	failed  func(operation string)
	keys    keys
	clock   clock
	guard   *guard
	scripts scripts
	// told counts what Redis tells of cached keys that have changed, and changes whatever else makes what is cached doubtful.
	told, changes atomic.Uint64
	away          absence

	// life ends with Close, and with it all calls under way.
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	current *connection
	// learned are the nodes of a cluster that the address does not name.
	learned []string

	requests requestPool
}

// New returns a client that connects in the background, so that a server may start before its Redis does. The error says
// what is wrong with the options.
func New(options Options) (*Client, error) {
	if options.Timeout <= 0 {
		options.Timeout = DefaultTimeout
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Failed == nil {
		options.Failed = func(string) {}
	}
	connect, err := parseAddress(options)
	if err != nil {
		return nil, err
	}
	keys, err := newKeys(options.KeyPrefix)
	if err != nil {
		return nil, err
	}
	c := &Client{
		connect: connect,
		secrets: secretsOf(connect),
		timeout: options.Timeout,
		log:     options.Log,
		failed:  options.Failed,
		keys:    keys,
		clock:   clock{test: options.Now, local: time.Now, born: time.Now()},
		guard:   newGuard(time.Now),
		scripts: newScripts(),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.connect.OnInvalidations = func(keys []rueidis.RedisMessage) {
		if keys == nil { // all of them: a connection has broken, or everything is gone
			c.changes.Add(1)
		} else {
			c.told.Add(1)
		}
	}
	c.connect.DialCtxFn = dialer(connect.DialCtxFn).during(c.life)
	first := c.connection() // so that the first call need not wait for it
	c.spawn(func() {
		select {
		case <-first.done:
			if first.err != nil {
				c.log.Warn("Redis cannot be reached yet; calls go on trying", slog.String("error", c.describe(first.err)))
			}
		case <-c.life.Done():
		}
	})
	return c, nil
}

// Close ends all calls under way and closes the connections, those that are being made too. Later calls fail.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.giveUp()
	c.running.Wait()
}

// spawn runs a function on a goroutine that Close waits for. It does nothing on a closed client.
func (c *Client) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running.Go(f)
	}
}
