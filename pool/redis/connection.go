package redis

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// errClosed is what calls on a closed client end with.
var errClosed = errors.New("the client is closed")

// connection is one attempt to connect and, when it came to something, the connections that it made. rueidis dials them
// anew by itself when they break.
type connection struct {
	// done is closed when the attempt has ended; then client or err is set.
	done   chan struct{}
	client rueidis.Client
	err    error
}

// connection returns the present one, or begins one.
func (c *Client) connection() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil || c.closed {
		return c.current
	}
	attempt := &connection{done: make(chan struct{})}
	c.current = attempt
	learned := c.learned
	c.running.Go(func() {
		attempt.client, attempt.err = c.open(c.connect)
		if attempt.err != nil && len(learned) > 0 {
			// Only when nobody answers at the addresses that were given: another may have moved in where nodes were.
			options := c.connect
			options.InitAddress = learned
			if client, err := c.open(options); err == nil {
				attempt.client, attempt.err = client, nil
			}
		}
		if attempt.err != nil {
			c.mu.Lock()
			if c.current == attempt { // the next call tries anew
				c.current = nil
			}
			c.mu.Unlock()
		}
		close(attempt.done)
	})
	return attempt
}

// open connects up to the server that keeps the counters, so that no call has to find the time for it.
func (c *Client) open(options rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(options)
	if errors.Is(err, rueidis.ErrNoCache) {
		// An old server, or something in between, that cannot tell what has changed. Everything is asked anew then.
		options.DisableCache = true
		client, err = rueidis.NewClient(options)
	}
	if err != nil && options.Sentinel.MasterSet != "" && options.Sentinel.Password != "" {
		// Sentinels that know no users are asked without one. Which of them refused is not known: the error is the last one's.
		options.Sentinel.Username, options.Sentinel.Password = "", ""
		if open, other := rueidis.NewClient(options); other == nil {
			client, err = open, nil
		}
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.life, options.Dialer.Timeout)
	defer cancel()
	// Whatever the answer is, a cluster's node that has this key is connected then.
	err = client.Do(ctx, client.B().Exists().Key(c.keys.tag).Build()).Error()
	if _, answered := rueidis.IsRedisErr(err); err != nil && !answered {
		client.Close()
		return nil, err
	}
	return client, nil
}

// connected waits for a connection.
func (c *Client) connected(ctx context.Context) (rueidis.Client, error) {
	attempt := c.connection()
	if attempt == nil {
		return nil, errClosed
	}
	select {
	case <-attempt.done:
		return attempt.client, attempt.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reconnect gives the connections up that a call failed on, unless there is an answer and the server only cannot do what it
// is asked: out of memory, say. To find it anew would take nodes that are well.
func (c *Client) reconnect(err error) {
	if _, answered := rueidis.IsRedisErr(err); !answered || elsewhere(err) {
		c.disconnect()
	}
}

// elsewhere reports whether a server said that the counters are not with it, because it is a replica by now or belongs to
// a cluster. Within what older servers say of scripts it does not come first.
func elsewhere(err error) bool {
	for _, word := range []string{"READONLY", "MASTERDOWN", "MOVED"} {
		if strings.Contains(err.Error(), word) {
			return true
		}
	}
	return false
}

// disconnect gives the connections up. What comes next is looked up and dialed anew: the server may have moved, or may
// be a replica by now, and a connection that hangs would hang on. An attempt that is under way goes on: where connecting
// takes longer than a call may, each call would throw away what the next one needs.
func (c *Client) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	attempt := c.current
	if attempt == nil {
		return
	}
	select {
	case <-attempt.done:
	default:
		return
	}
	c.current = nil
	if attempt.client == nil {
		return
	}
	c.changes.Add(1) // nobody tells of changes any more
	c.learn(attempt.client)
	c.running.Go(attempt.client.Close)
}

// learn remembers the nodes of a cluster that the address does not name: one that it names may be gone by now.
func (c *Client) learn(client rueidis.Client) {
	if client.Mode() != rueidis.ClientModeCluster {
		return
	}
	c.learned = nil
	for address := range client.Nodes() {
		if !slices.Contains(c.connect.InitAddress, address) {
			c.learned = append(c.learned, address)
		}
	}
}

// giveUp ends what is left of the connections.
func (c *Client) giveUp() {
	c.mu.Lock()
	attempt := c.current
	c.current = nil
	c.mu.Unlock()
	if attempt == nil {
		return
	}
	<-attempt.done
	if attempt.client != nil {
		attempt.client.Close()
	}
}
