package openaiapi

// JSON returns the part as one JSON object.
func (p *Part) JSON() string { return string(p.appendJSON(nil)) }

// JSON returns the tool as one JSON object.
func (t *Tool) JSON() string { return string(t.appendJSON(nil)) }

// JSON returns the format as one JSON object.
func (f *ResponseFormat) JSON() string { return string(f.appendJSON(nil)) }

// JSON returns the choice as JSON: a string or an object.
func (c *ToolChoice) JSON() string { return string(c.appendJSON(nil)) }
