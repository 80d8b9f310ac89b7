package noderegistry

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
)

// Guard judges addresses as they will be judged when they are dialled.
type Guard interface {
	// Check reads a base URL and returns it with its host in one spelling. It looks nothing up.
	Check(raw string) (*url.URL, error)
	// Resolve returns the addresses of a host that may be dialled.
	Resolve(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Guarded checks endpoints with the guard of those networks. forbidden is what the guard's errors wrap for an address that
// may not be dialled.
func Guarded(guard func(allowed []netip.Prefix) Guard, forbidden error) func(ctx context.Context, raw string, allowed []netip.Prefix) (string, error) {
	return func(ctx context.Context, raw string, allowed []netip.Prefix) (string, error) {
		g := guard(allowed)
		endpoint, err := g.Check(raw)
		fault := Malformed
		if err == nil {
			fault = Unresolved
			_, err = g.Resolve(ctx, "tcp", endpoint.Hostname())
		}
		switch {
		case err == nil:
			return endpoint.String(), nil
		case errors.Is(err, forbidden):
			fault = Forbidden
		}
		return "", &EndpointError{Fault: fault, Err: err}
	}
}
