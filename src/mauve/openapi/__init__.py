"""The API reference: an OpenAPI document generated from the types and routes of the planes, and its HTML page."""
