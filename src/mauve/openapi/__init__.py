"""The API reference: an OpenAPI document made of the types and tables that the planes use, and a page that shows it."""
