package gemini

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/ai-process/ktms/vendors"
)

const (
	defaultBase = "https://generativelanguage.googleapis.com/v1beta"
	// version is the path of the API where a base URL names none.
	version = "/v1beta"
)

// hasVersion finds a version among the steps of a path: /v1beta, and /v1/projects/… of Vertex.
var hasVersion = regexp.MustCompile(`/v[0-9]+[a-z0-9]*(/|$)`)

// endpoint is the address of a method of a target's model.
func endpoint(t vendors.Target, method string, stream bool) (string, *vendors.Error) {
	base := or(t.BaseURL, defaultBase)
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The error of url.Parse holds the URL, and that may hold a credential.
		return "", &vendors.Error{Kind: vendors.Denied, Vendor: t.Vendor, Message: "the model's endpoint is not an http or https URL"}
	}
	u.Fragment, u.RawFragment = "", ""
	path, raw := strings.TrimRight(u.Path, "/"), strings.TrimRight(u.EscapedPath(), "/")
	if !hasVersion.MatchString(path) {
		path, raw = path+version, raw+version
	}
	collection, id := split(t.Model)
	u.Path = path + "/" + collection + "/" + id + ":" + method
	// A colon within the id would end it.
	u.RawPath = raw + "/" + collection + "/" + strings.ReplaceAll(url.PathEscape(id), ":", "%3A") + ":" + method
	if stream { // without it the answer is one JSON list
		query := u.Query()
		query.Set("alt", "sse")
		u.RawQuery = query.Encode()
	}
	return u.String(), nil
}

// split takes a model's id apart: callers may write the collection before it, as the vendor's lists do, and Vertex the
// publisher before that.
func split(model string) (collection, id string) {
	if strings.HasPrefix(model, "publishers/") || strings.HasPrefix(model, "projects/") {
		if at := strings.LastIndex(model, "/models/"); at >= 0 {
			model = model[at+1:]
		}
	}
	for _, collection := range []string{"models", "tunedModels"} {
		if id, ok := strings.CutPrefix(model, collection+"/"); ok {
			return collection, id
		}
	}
	return "models", model
}
