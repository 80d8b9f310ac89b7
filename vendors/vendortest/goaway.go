package vendortest

import (
	"encoding/binary"
	"io"
	"net"
)

// GoAway makes the next n HTTP/2 connections end with a GOAWAY that says that none of their requests was looked at, as
// servers do that are about to restart.
func (u *Upstream) GoAway(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refusals += n
}

func (u *Upstream) takeRefusal() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refusals == 0 {
		return false
	}
	u.refusals--
	return true
}

// The few bytes of HTTP/2 that this takes.
const (
	prefaceLength     = 24
	frameHeaderLength = 9
	frameHeaders      = 1
)

var (
	emptySettings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	// last stream 0, no error.
	goAwayFrame = []byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
)

// goAway waits for a request and sends it away.
func (u *Upstream) goAway(conn net.Conn) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-u.done:
		case <-over:
		}
		_ = conn.Close()
	}()
	if _, err := conn.Write(emptySettings); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, conn, prefaceLength); err != nil {
		return
	}
	var header [frameHeaderLength]byte
	for {
		if _, err := io.ReadFull(conn, header[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(header[:4]) >> 8
		if _, err := io.CopyN(io.Discard, conn, int64(length)); err != nil {
			return
		}
		if header[3] == frameHeaders {
			if _, err := conn.Write(goAwayFrame); err != nil {
				return
			}
		}
	}
}
