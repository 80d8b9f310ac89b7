package redis

import (
	"context"
	"errors"

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
	c.running.Go(func() {
		attempt.client, attempt.err = rueidis.NewClient(c.connect)
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

// disconnect gives the connections up. What comes next is looked up and dialed anew: the server may have moved, or may
// be a replica by now, and a connection that hangs would hang on.
func (c *Client) disconnect() {
	c.mu.Lock()
	attempt := c.current
	c.current = nil
	if attempt != nil {
		c.running.Go(func() {
			<-attempt.done
			if attempt.client != nil {
				attempt.client.Close()
			}
		})
	}
	c.mu.Unlock()
}
