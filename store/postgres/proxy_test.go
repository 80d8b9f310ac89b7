package postgres

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a store and the server, and can do what networks do: go silent, refuse, cut.
type proxy struct {
	listener net.Listener
	server   string

	mu       sync.Mutex
	links    map[*link]bool
	silent   bool // new connections are silent from their start
	refusing bool
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn

	mu      sync.Mutex
	open    sync.Cond // signalled when it may forward again, or is cut
	silent  bool
	cut     bool
	listens bool // it said LISTEN
}

// throughProxy returns an address that leads to the server of another one.
func throughProxy(t *testing.T, address string) (*proxy, string) {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, server: parsed.Host, links: make(map[*link]bool)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.each(func(l *link) { l.end() })
		running.Wait()
	})
	parsed.Host = listener.Addr().String()
	return p, parsed.String()
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	refusing := p.refusing
	p.mu.Unlock()
	if refusing {
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{client: client, server: server}
	l.open.L = &l.mu
	p.mu.Lock()
	l.silent = p.silent
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()

	var both sync.WaitGroup
	both.Go(func() { l.forward(server, client) })
	both.Go(func() { l.forward(client, server) })
	both.Wait()
}

func (l *link) forward(to, from net.Conn) {
	defer l.end()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		if from == l.client && bytes.Contains(buffer[:n], []byte("LISTEN ")) {
			l.listens = true
		}
		for l.silent && !l.cut {
			l.open.Wait()
		}
		l.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.open.Broadcast()
	l.client.Close()
	l.server.Close()
}

func (l *link) setSilent(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = silent
	l.open.Broadcast()
}

func (p *proxy) each(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// deafen makes the connections that listen now go silent, and returns how many there were.
func (p *proxy) deafen() (deafened int) {
	p.each(func(l *link) {
		l.mu.Lock()
		listens := l.listens
		l.mu.Unlock()
		if listens {
			l.setSilent(true)
			deafened++
		}
	})
	return deafened
}

// hang makes every connection silent, also those to come; resume ends it.
func (p *proxy) hang() { p.setSilent(true) }

func (p *proxy) resume() { p.setSilent(false) }

func (p *proxy) setSilent(silent bool) {
	p.mu.Lock()
	p.silent = silent
	p.mu.Unlock()
	p.each(func(l *link) { l.setSilent(silent) })
}

// refuse closes new connections at once, or no longer.
func (p *proxy) refuse(refusing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refusing
}
