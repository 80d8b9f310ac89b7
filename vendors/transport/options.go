package transport

import "net/http"

// Options configure a dialect. The zero value is ready for use.
type Options struct {
	// Transport carries the calls. Nil is a pool of connections of the dialect's own.
	Transport http.RoundTripper
	Limits    Limits
	// MaxAnswer is the longest answer, and the longest event of a stream, in bytes; 0 is what the dialect takes from a
	// vendor. Dialects that are spoken to vendors alone have no other.
	MaxAnswer int
	// Version of Keystone, for the User-Agent.
	Version string
}

// Client returns a client as the options say.
func (o Options) Client() *Client { return NewClient(o.Transport, o.Limits) }

// UserAgent is what goes out as such.
func (o Options) UserAgent() string {
	if o.Version == "" {
		return "ktms"
	}
	return "ktms/" + o.Version
}
