package anthropic

import (
	"net/url"
	"strings"

	"github.com/ai-process/ktms/vendors"
)

const (
	baseURL      = "https://api.anthropic.com"
	messagesPath = "/messages"
)

// endpoint is the address of a target's Messages API. The vendor's own base URL has no /v1, so that one is added to a
// base URL that does not end in it, whatever comes before.
func endpoint(t vendors.Target) (string, *vendors.Error) {
	base := t.BaseURL
	if base == "" {
		base = baseURL
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The error of url.Parse holds the URL, and that may hold a credential.
		return "", &vendors.Error{Kind: vendors.Denied, Vendor: t.Vendor, Message: "the model's endpoint is not an http or https URL"}
	}
	u.Fragment = ""
	path := strings.TrimRight(u.Path, "/")
	switch {
	case strings.HasSuffix(path, "/v1"+messagesPath):
	case strings.HasSuffix(path, "/v1"):
		path += messagesPath
	default:
		path += "/v1" + messagesPath
	}
	u.Path, u.RawPath = path, ""
	return u.String(), nil
}
