package vendortest

import (
	"net"
	"net/http"
)

// Exchange is one call that a Reply answers. Its methods end the reply when the caller has gone.
type Exchange struct {
	Call     *Call
	w        http.ResponseWriter
	ctrl     *http.ResponseController
	upstream *Upstream
}

// Start sends the status and the header, given as names and values in turn.
func (x *Exchange) Start(status int, header ...string) {
	for i := 0; i+1 < len(header); i += 2 {
		x.w.Header().Set(header[i], header[i+1])
	}
	x.w.WriteHeader(status)
	x.flush()
}

// Write sends pieces of the body, each on its own.
func (x *Exchange) Write(pieces ...string) {
	for _, piece := range pieces {
		if _, err := x.w.Write([]byte(piece)); err != nil {
			x.abort()
		}
		x.flush()
	}
}

// Trickle sends pieces of the body byte by byte.
func (x *Exchange) Trickle(pieces ...string) {
	for _, piece := range pieces {
		for i := range len(piece) {
			x.Write(piece[i : i+1])
		}
	}
}

func (x *Exchange) flush() {
	if err := x.ctrl.Flush(); err != nil {
		x.abort()
	}
}

// Wait waits for a signal.
func (x *Exchange) Wait(signal <-chan struct{}) {
	select {
	case <-signal:
	case <-x.Call.gone:
		x.abort()
	case <-x.upstream.done:
		x.abort()
	}
}

// Stall sends nothing more. It lasts until the caller goes away.
func (x *Exchange) Stall() { x.Wait(nil) }

// Cut closes the connection where it is; over HTTP/2, the stream.
func (x *Exchange) Cut() { x.abort() }

// abort ends the handler, and with it the connection, without completing the body.
func (x *Exchange) abort() { panic(http.ErrAbortHandler) }

// Reset ends the connection with a TCP reset.
func (x *Exchange) Reset() {
	if conn, _, err := x.ctrl.Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	x.abort()
}

// Respond is a reply in one piece; header is names and values in turn.
func Respond(status int, body string, header ...string) Reply {
	return func(x *Exchange) {
		x.Start(status, header...)
		x.Write(body)
	}
}

// Events is a reply with status 200 in several pieces.
func Events(contentType string, pieces ...string) Reply {
	return func(x *Exchange) {
		x.Start(http.StatusOK, "Content-Type", contentType)
		x.Write(pieces...)
	}
}
