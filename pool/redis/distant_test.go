package redis

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool/pooltest"
)

// way is a long way to a server: what goes through it takes a while in each direction.
type way struct {
	addr  string
	to    string
	takes time.Duration

	mu    sync.Mutex
	conns []net.Conn
}

func newWay(t *testing.T, to string, takes time.Duration) *way {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{addr: listener.Addr().String(), to: to, takes: takes}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			w.carry(from)
		}
	})
	t.Cleanup(func() {
		listener.Close()
		accepting.Wait()
		w.cut()
	})
	return w
}

func (w *way) carry(from net.Conn) {
	into, err := net.Dial("tcp", w.to)
	if err != nil {
		from.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, from, into)
	w.mu.Unlock()
	go w.pump(from, into)
	go w.pump(into, from)
}

// pump carries what is read, each piece as late as the way is long.
func (w *way) pump(from io.Reader, into io.WriteCloser) {
	type piece struct {
		due   time.Time
		bytes []byte
	}
	pieces := make(chan piece, 10_000)
	go func() {
		defer into.Close()
		for p := range pieces {
			<-time.After(time.Until(p.due))
			into.Write(p.bytes) // an error shows on the reader's side
		}
	}()
	defer close(pieces)
	for {
		buffer := make([]byte, 64<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			pieces <- piece{time.Now().Add(w.takes), buffer[:n]}
		}
		if err != nil {
			return
		}
	}
}

// cut breaks every connection.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		conn.Close()
	}
	w.conns = nil
}

// TestDistant has a Redis to which connecting takes longer than a call may take.
func TestDistant(t *testing.T) {
	t.Parallel()
	server := pooltest.StartRedis(t)
	w := newWay(t, server.Addr, hangs/5) // of which a call takes two, and connecting six at least
	o := newOutageAt(t, server, w.addr, hangs)
	for range 2 {
		o.works()
		server.Stop()
		w.cut()
		eventually(t, "Redis is left alone", func() bool { return o.admit(t.Context()) == errResting })
		server.Start(t)
	}
	o.works()
}

// TestAttemptsGoOn holds that calls which do not wait for a connection leave it to those that come later.
func TestAttemptsGoOn(t *testing.T) {
	t.Parallel()
	server := pooltest.StartRedis(t)
	server.Pause(t)
	c := open(t, Options{Addr: server.Addr, Timeout: hangs})
	first := c.connection()
	c.disconnect()
	if c.connection() != first {
		t.Error("an attempt that was under way is given up")
	}
	server.Resume(t)
	eventually(t, "it comes to something", func() bool { return c.connection() == first && isDone(first) })
	c.disconnect()
	if c.connection() == first {
		t.Error("the connections are kept")
	}
}

func isDone(attempt *connection) bool {
	select {
	case <-attempt.done:
		return attempt.err == nil
	default:
		return false
	}
}
