"""One view of Django, its settings and its models: what servers.py runs under gunicorn. Everything is Django's default,
but for the time-out of 5 s, which is Python's."""
import os

import django
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="of a benchmark",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"],
                           "OPTIONS": {"timeout": 5}}})
django.setup()

# pylint: disable=wrong-import-position
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.db import OperationalError, models, transaction  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402


class Counter(models.Model):
    value = models.IntegerField()

    class Meta:
        app_label, db_table, managed = "bench", "counter", False


class Visit(models.Model):
    counter = models.ForeignKey(Counter, models.CASCADE)
    text = models.TextField()

    class Meta:
        app_label, db_table, managed = "bench", "visit", False


def add(_, number):
    try:
        with transaction.atomic():
            counter = Counter.objects.get(pk=number)
            counter.value += 1
            counter.save()
            Visit.objects.create(counter=counter, text=f"the visit {counter.value}")
    except OperationalError as error:
        return HttpResponse(str(error), status=503)
    return HttpResponse(str(counter.value))


urlpatterns = [path("add/<int:number>", add)]
application = WSGIHandler()
