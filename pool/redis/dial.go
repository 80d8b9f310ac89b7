package redis

import (
	"context"
	"crypto/tls"
	"net"
)

// dialer makes one network connection.
type dialer func(ctx context.Context, address string, settings *net.Dialer, security *tls.Config) (net.Conn, error)

// during makes connections that end with a life, so that nothing that hangs outlasts it.
func (d dialer) during(life context.Context) dialer {
	return func(ctx context.Context, address string, settings *net.Dialer, security *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		conn, err := d(ctx, address, settings, security)
		if err != nil {
			return nil, err
		}
		return &mortal{Conn: conn, forget: context.AfterFunc(life, func() { conn.Close() })}, nil
	}
}

// dialTCP makes a connection to host:port.
func dialTCP(ctx context.Context, address string, settings *net.Dialer, security *tls.Config) (net.Conn, error) {
	if security == nil {
		return settings.DialContext(ctx, "tcp", address)
	}
	secure := tls.Dialer{NetDialer: settings, Config: security}
	return secure.DialContext(ctx, "tcp", address)
}

// mortal is a connection that a life's end closes, unless it was closed before.
type mortal struct {
	net.Conn
	forget func() bool
}

func (m *mortal) Close() error {
	m.forget()
	return m.Conn.Close()
}
